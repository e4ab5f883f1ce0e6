package replicaset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

const kind = "ReplicaSet"

// claims says what the pods of a namespace are to a ReplicaSet.
type claims struct {
	mine        []*caches.Pod // active, ours and selected
	adopt       []*caches.Pod // active, nobody's and selected
	release     []*caches.Pod // active and ours, no longer selected
	failed      []*caches.Pod // ours and failed, by itself and not because it was deleted
	terminating int           // ours, selected and being deleted
}

// claim sorts pods. Pods of others, and finished or terminating pods that are nobody's, are nothing to the ReplicaSet. gone holds pods that
// were deleted though they may look active: those that take their time to end count as terminating, the others not at all. A ReplicaSet that is
// being deleted neither adopts nor releases.
func claim(rs *appsv1.ReplicaSet, selector labels.Selector, pods []*caches.Pod, gone map[types.UID]bool) claims {
	var c claims
	for _, pod := range pods {
		orphan := metav1.GetControllerOfNoCopy(pod) == nil
		selected := selector.Matches(labels.Set(pod.Labels))
		ending, deleted := gone[pod.UID]
		deleted = deleted || pod.DeletionTimestamp != nil
		switch {
		case pod.Namespace != rs.Namespace || !orphan && !controls(rs, pod):
		case pod.IsFinished():
			if !orphan && !deleted && pod.Phase == corev1.PodFailed {
				c.failed = append(c.failed, pod)
			}
		case orphan:
			if selected && rs.DeletionTimestamp == nil && !deleted {
				c.adopt = append(c.adopt, pod)
			}
		case deleted:
			if selected && (pod.DeletionTimestamp != nil || ending) {
				c.terminating++
			}
		case selected:
			c.mine = append(c.mine, pod)
		case rs.DeletionTimestamp == nil:
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

// controls reports whether rs is the controller of a pod. A reference with the right UID and another name or kind is an error of somebody's:
// the garbage collector takes its pod for an orphan of a deleted owner.
func controls(rs *appsv1.ReplicaSet, pod *caches.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	return ref != nil && ref.UID == rs.UID && ref.Kind == kind && ref.Name == rs.Name
}

// lingers reports whether a pod stays for a while after its deletion: a kubelet stops it first, or somebody holds a finalizer.
func lingers(pod *caches.Pod) bool { return pod.NodeName != "" || len(pod.Finalizers) > 0 }

// controllerRef is the owner reference of our pods.
func controllerRef(rs *appsv1.ReplicaSet) *metav1.OwnerReference {
	return metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind(kind))
}
