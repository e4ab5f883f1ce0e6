package deployment

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"

	"minikcm/pkg/caches"
)

// sameTemplate reports whether two templates make the same pods: nil equals empty, quantities and times are
// compared by value, and the label pod-template-hash is ignored. The result does not depend on names or hashes.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return a == b || equality.Semantic.DeepEqual(caches.WithoutHash(a), caches.WithoutHash(b))
}

// templateMemo holds comparisons with the template of a Deployment at one generation. Without it every sync would
// compare all templates.
type templateMemo struct {
	generation int64
	digest     string // empty if not computed
	compared   map[types.UID]comparison
}

// comparison is the result for one generation of a ReplicaSet.
type comparison struct {
	generation int64
	same       bool
}

// isCurrent reports whether a ReplicaSet has the template of the Deployment. The cache keeps only a digest of
// templates without replicas.
func (m *templateMemo) isCurrent(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	if m.compared == nil || m.generation != d.Generation {
		*m = templateMemo{generation: d.Generation, compared: map[types.UID]comparison{}}
	}
	if kept, ok := caches.KeptDigest(rs); ok {
		if m.digest == "" {
			m.digest = caches.TemplateDigest(&d.Spec.Template)
		}
		return kept == m.digest
	}
	known, ok := m.compared[rs.UID]
	if !ok || known.generation != rs.Generation {
		known = comparison{rs.Generation, sameTemplate(&d.Spec.Template, &rs.Spec.Template)}
		m.compared[rs.UID] = known
	}
	return known.same
}

// templateHash returns the label pod-template-hash, as kube-controller-manager v1.37 computes it. collisions is the
// collisionCount: nil and 0 give different hashes.
//
// The template must be as the API server sent it, and must not have been marshalled: marshalling a quantity stores
// its text, which is part of the hash. The hash is valid for one version of k8s.io/api. ReplicaSets with other
// hashes are found by sameTemplate.
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

// replicaSetName returns the name of the ReplicaSet for a hash. Long names of Deployments are cut.
func replicaSetName(deployment, hash string) string {
	const longest = validation.DNS1123SubdomainMaxLength
	if length := longest - len("-") - len(hash); length > 0 && len(deployment) > length {
		deployment = deployment[:length]
	}
	return deployment + "-" + hash
}

// nextName returns the name of the ReplicaSet for the template of a Deployment.
func nextName(d *appsv1.Deployment) string {
	return replicaSetName(d.Name, templateHash(*d.Spec.Template.DeepCopy(), d.Status.CollisionCount))
}
