package deployment

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// sameTemplate reports whether two templates make the same pods: nil is empty, quantities and times are compared by value, and the label
// pod-template-hash does not count. It tells the ReplicaSet of a Deployment's present template, whoever named it and with whatever hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	if a == b {
		return true
	}
	return equality.Semantic.DeepEqual(caches.WithoutHash(a), caches.WithoutHash(b))
}

// templates is what was found out about the template of one Deployment at one generation, so that it need not be found out in every sync.
type templateMemo struct {
	generation int64
	digest     string // empty: none was made
	compared   map[types.UID]comparison
}

// comparison is whether a ReplicaSet of a generation has the template.
type comparison struct {
	generation int64
	same       bool
}

// at forgets what was found out about another generation.
func (k *templateMemo) at(d *appsv1.Deployment) *templateMemo {
	if k.compared == nil || k.generation != d.Generation {
		*k = templateMemo{generation: d.Generation, compared: map[types.UID]comparison{}}
	}
	return k
}

// digestOf is that of the template of the Deployment.
func (k *templateMemo) digestOf(d *appsv1.Deployment) string {
	if k = k.at(d); k.digest == "" {
		k.digest = caches.TemplateDigest(&d.Spec.Template)
	}
	return k.digest
}

// isOf reports whether a ReplicaSet has the template of the Deployment. Of one that asks for no pods the cache has only a digest.
func (k *templateMemo) isCurrent(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	if kept, ok := caches.KeptDigest(rs); ok {
		return kept == k.digestOf(d)
	}
	k = k.at(d)
	known, ok := k.compared[rs.UID]
	if !ok || known.generation != rs.Generation {
		known = comparison{rs.Generation, sameTemplate(&d.Spec.Template, &rs.Spec.Template)}
		k.compared[rs.UID] = known
	}
	return known.same
}

// forget drops what is known of ReplicaSets that are gone.
func (k *templateMemo) keepOnly(sets []*appsv1.ReplicaSet) {
	if len(k.compared) <= len(sets) {
		return
	}
	maps.DeleteFunc(k.compared, func(uid types.UID, _ comparison) bool {
		return !slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.UID == uid })
	})
}
