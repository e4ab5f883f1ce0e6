package deployment

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
)

// templateHash is the value of the label pod-template-hash, computed as kube-controller-manager v1.37 does: whoever makes the ReplicaSet of a
// template gives it the same name, so that there is one of them. collisions is the collisionCount of the Deployment; nil and 0 differ.
//
// The template must be as it came from the API server and must never have been marshalled: the hash covers the text that a quantity has once
// it was printed, and the difference between nil and empty. It holds for one version of k8s.io/api, since fields that are not set are
// part of it; ReplicaSets with other hashes are found all the same, by sameTemplate.
func templateHash(template corev1.PodTemplateSpec, collisions *int32) string {
	sum := fnv.New32a()
	io.WriteString(sum, dump.ForHash(template))
	if collisions != nil {
		var count [8]byte
		binary.LittleEndian.PutUint32(count[:], uint32(*collisions))
		sum.Write(count[:])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}

// replicaSetName is the name of the ReplicaSet for a hash. The name of the Deployment is cut where both together are too long for an object.
func replicaSetName(deployment, hash string) string {
	const longest = validation.DNS1123SubdomainMaxLength
	if room := longest - len("-") - len(hash); room > 0 && len(deployment) > room {
		deployment = deployment[:room]
	}
	return deployment + "-" + hash
}
