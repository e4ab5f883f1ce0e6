package replicaset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/ownership"
)

const kind = "ReplicaSet"

var ownerKind = appsv1.SchemeGroupVersion.WithKind(kind)

// claims holds the pods of a ReplicaSet, by what they count for.
type claims struct {
	mine        []*caches.Pod // active, controlled and selected
	adopt       []*caches.Pod // active and selected orphans
	release     []*caches.Pod // active and controlled, no longer selected
	failed      []*caches.Pod // controlled and failed before any deletion
	terminating int           // controlled, selected and being deleted
}

// claim sorts pods. deleted holds the pods that this process deleted though the cache may show them as active: lingering pods count as
// terminating, others do not count. A ReplicaSet that is being deleted neither adopts nor releases.
func claim(rs *appsv1.ReplicaSet, selector labels.Selector, pods []*caches.Pod, deleted map[types.UID]bool) claims {
	var c claims
	for _, pod := range pods {
		relation := ownership.RelationOf(rs, kind, selector, pod)
		lingering, gone := deleted[pod.UID]
		gone = gone || pod.DeletionTimestamp != nil
		switch {
		case relation == ownership.Unrelated:
		case pod.IsFinished():
			if relation != ownership.Adoptable && !gone && pod.Phase == corev1.PodFailed {
				c.failed = append(c.failed, pod)
			}
		case gone:
			if relation == ownership.Owned && (pod.DeletionTimestamp != nil || lingering) {
				c.terminating++
			}
		case relation == ownership.Owned:
			c.mine = append(c.mine, pod)
		case rs.DeletionTimestamp != nil:
		case relation == ownership.Adoptable:
			c.adopt = append(c.adopt, pod)
		default:
			c.release = append(c.release, pod)
		}
	}
	return c
}

// after is what the pods are once some were created and some deleted, as [claim] will see them when the cache shows it.
func (c claims) after(t task, created, deleted []*caches.Pod) claims {
	if len(created)+len(deleted) == 0 {
		return c
	}
	gone := byUID(deleted)
	c.mine = slices.DeleteFunc(slices.Clone(c.mine), func(pod *caches.Pod) bool { return gone[pod.UID] != nil })
	for _, pod := range deleted {
		if t.ledger.deleted[pod.UID] {
			c.terminating++
		}
	}
	for _, pod := range created {
		if t.counts(pod) { // not one that lost its owner on its way
			c.mine = append(c.mine, pod)
		}
	}
	return c
}

func controls(rs *appsv1.ReplicaSet, pod *caches.Pod) bool { return ownership.Controls(rs, kind, pod) }

// lingers reports whether a pod stays for a while after its deletion: a kubelet stops it first, or somebody holds a finalizer.
func lingers(pod *caches.Pod) bool { return pod.NodeName != "" || len(pod.Finalizers) > 0 }

// controllerRef is the owner reference of our pods.
func controllerRef(rs *appsv1.ReplicaSet) *metav1.OwnerReference {
	return metav1.NewControllerRef(rs, ownerKind)
}
