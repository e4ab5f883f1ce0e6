package replicaset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/ownership"
)

const kind = "ReplicaSet"

var ownerKind = appsv1.SchemeGroupVersion.WithKind(kind)

// claims holds the pods of a ReplicaSet by their role.
type claims struct {
	owned       []*caches.Pod // active, controlled and selected
	adopt       []*caches.Pod // active and selected orphans
	release     []*caches.Pod // active and controlled, no longer selected
	failed      []*caches.Pod // controlled and failed before any deletion
	terminating int           // controlled, selected and being deleted
}

// claimPods sorts pods. deleted holds the pods that this process deleted although the cache may show them
// as active: lingering pods count as terminating, others do not count. A ReplicaSet that is being deleted
// neither adopts nor releases pods.
func claimPods(rs *appsv1.ReplicaSet, selector labels.Selector, pods []*caches.Pod, deleted map[types.UID]bool) claims {
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
			c.owned = append(c.owned, pod)
		case rs.DeletionTimestamp != nil:
		case relation == ownership.Adoptable:
			c.adopt = append(c.adopt, pod)
		default:
			c.release = append(c.release, pod)
		}
	}
	return c
}

// withResults returns the claims after some pods were created and deleted, as the caches will show them.
func (c claims) withResults(t syncState, created, deleted []*caches.Pod) claims {
	if len(created)+len(deleted) == 0 {
		return c
	}
	gone := indexByUID(deleted)
	c.owned = slices.DeleteFunc(slices.Clone(c.owned), func(pod *caches.Pod) bool { return gone[pod.UID] != nil })
	for _, pod := range deleted {
		if t.expectations.deleted[pod.UID] {
			c.terminating++
		}
	}
	for _, pod := range created {
		if t.isOwned(pod) { // a webhook may have removed the owner
			c.owned = append(c.owned, pod)
		}
	}
	return c
}

func controls(rs *appsv1.ReplicaSet, pod *caches.Pod) bool {
	return ownership.IsController(rs, kind, pod)
}

// lingers reports whether a pod stays for a while after its deletion: a kubelet stops it first, or a
// finalizer blocks it.
func lingers(pod *caches.Pod) bool { return pod.NodeName != "" || len(pod.Finalizers) > 0 }

// plan holds the numbers of pods to create or delete.
type plan struct {
	create      int
	unconfirmed []*caches.Pod // active pods whose delete has an unknown outcome
	repeat      int           // number of unconfirmed pods to delete again
	candidates  []*caches.Pod // other active pods
	surplus     int           // number of candidates to delete
	missing     int           // wanted minus active pods; not limited by burst
}

func (p plan) deletes() bool { return p.repeat+p.surplus > 0 }

// unconfirmedNeeded returns the number of needed pods whose delete has an unknown outcome.
func (p plan) unconfirmedNeeded() int { return len(p.unconfirmed) - p.repeat }

// planReplicas compares the active pods with the wanted number. Unconfirmed pods are deleted before all
// others: deleting others while the earlier delete may still be carried out could leave too few pods. An
// unconfirmed pod that is needed again is neither deleted nor replaced until the outcome is known.
func planReplicas(want int, active []*caches.Pod, unconfirmed map[types.UID]unconfirmedDelete, burst int) plan {
	p := plan{candidates: active, missing: want - len(active)}
	if len(unconfirmed) > 0 {
		p.candidates = nil
		for _, pod := range active {
			if _, ok := unconfirmed[pod.UID]; ok {
				p.unconfirmed = append(p.unconfirmed, pod)
			} else {
				p.candidates = append(p.candidates, pod)
			}
		}
	}
	p.create = min(max(p.missing, 0), burst)
	deletes := min(max(-p.missing, 0), burst)
	p.repeat = min(deletes, len(p.unconfirmed))
	p.surplus = deletes - p.repeat
	return p
}
