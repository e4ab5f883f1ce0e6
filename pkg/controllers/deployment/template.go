package deployment

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// sameTemplate reports whether two templates make the same pods: nil is empty, quantities and times are compared by value, and the label
// pod-template-hash does not count. It tells the ReplicaSet of a Deployment's present template, whoever named it and with whatever hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	if a == b {
		return true
	}
	return equality.Semantic.DeepEqual(withoutHash(a), withoutHash(b))
}

// withoutHash shares all but the labels with the template.
func withoutHash(t *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	out := *t
	if _, ok := t.Labels[hashLabel]; ok {
		out.Labels = maps.Clone(t.Labels)
		delete(out.Labels, hashLabel)
	}
	return out
}
