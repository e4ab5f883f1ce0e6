package replicaset

import (
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// plan says how a ReplicaSet gets from the pods it has to the number it wants. At most one of create and surplus is positive.
type plan struct {
	create     int           // pods to create now
	repeat     []*caches.Pod // deletes to send again, because their answer was lost
	surplus    int           // pods to choose from candidates and delete now
	candidates []*caches.Pod // active pods that are not on their way out
	missing    int           // how many active pods are missing, or, if negative, too many; not bounded by burst
}

// writes reports whether the plan creates or deletes anything.
func (p plan) writes() bool { return p.create > 0 || p.surplus > 0 || len(p.repeat) > 0 }

// planReplicas compares the active pods of a ReplicaSet with the number it wants. A doomed pod, one whose delete was not answered, may
// go at any moment: it counts as gone, and its delete is sent again until its fate is known.
func planReplicas(want int, active []*caches.Pod, doomed map[types.UID]doom, burst int) plan {
	p := plan{candidates: active}
	if len(doomed) > 0 {
		p.candidates = nil
		for _, pod := range active {
			if _, ok := doomed[pod.UID]; ok {
				p.repeat = append(p.repeat, pod)
			} else {
				p.candidates = append(p.candidates, pod)
			}
		}
	}
	p.missing = want - len(p.candidates)
	p.create = min(max(p.missing, 0), burst)
	p.surplus = min(max(-p.missing, 0), max(burst-len(p.repeat), 0))
	return p
}

// slowStart calls batch with sizes that add up to n: 1, 2, 4 and so on, the last one cut to what is left. It stops at the first
// error and returns it, so n creates that would all fail for one reason cost few requests.
func slowStart(n int, batch func(size int) error) error {
	for size := 1; n > 0; size *= 2 {
		size = min(size, n)
		if err := batch(size); err != nil {
			return err
		}
		n -= size
	}
	return nil
}
