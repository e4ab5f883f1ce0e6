package replicaset

import (
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// plan says how a ReplicaSet gets from the pods it has to the number it wants: it creates, or it deletes, or neither.
type plan struct {
	create     int           // pods to create now
	unanswered []*caches.Pod // active pods that a delete was sent for and not answered
	repeat     int           // pods to choose from unanswered and delete again
	candidates []*caches.Pod // the other active pods
	surplus    int           // pods to choose from candidates and delete
	missing    int           // active pods too few; negative: too many. Not bounded by burst
}

// writes reports whether the plan creates or deletes anything.
func (p plan) writes() bool { return p.create > 0 || p.deletes() }

func (p plan) deletes() bool { return p.repeat+p.surplus > 0 }

// spared is how many pods are wanted again although a delete that was sent for them has not been answered.
func (p plan) spared() int { return len(p.unanswered) - p.repeat }

// planReplicas compares the active pods of a ReplicaSet with the number it wants. Pods with an unanswered delete are deleted before all others:
// deleting others while that delete may still be carried out could end with too few pods. Such a pod that is wanted again is left alone, and
// is not replaced either, until it is known whether it stays.
func planReplicas(want int, active []*caches.Pod, unanswered map[types.UID]unansweredDelete, burst int) plan {
	p := plan{candidates: active, missing: want - len(active)}
	if len(unanswered) > 0 {
		p.candidates = nil
		for _, pod := range active {
			if _, ok := unanswered[pod.UID]; ok {
				p.unanswered = append(p.unanswered, pod)
			} else {
				p.candidates = append(p.candidates, pod)
			}
		}
	}
	p.create = min(max(p.missing, 0), burst)
	deletes := min(max(-p.missing, 0), burst)
	p.repeat = min(deletes, len(p.unanswered))
	p.surplus = deletes - p.repeat
	return p
}

// slowStart calls batch with sizes that add up to n: first, then always twice as many, the last one cut to what is left. It stops at the first
// error and returns it, so n creates that would all fail for one reason cost few requests.
func slowStart(first, n int, batch func(size int) error) error {
	for size := first; n > 0; size *= 2 {
		size = min(size, n)
		if err := batch(size); err != nil {
			return err
		}
		n -= size
	}
	return nil
}
