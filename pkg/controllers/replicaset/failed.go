package replicaset

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
)

// Back-off of creates that replace pods which failed soon after they were made, because kubelets refuse them for instance.
const (
	failedWindow     = 10 * time.Minute
	failedTolerated  = 3  // in a window, of few replicas
	failedShare      = 10 // of many it is one in ten
	minFailedBackoff = 10 * time.Second
	maxFailedBackoff = 5 * time.Minute
)

// failedHold says how many pods must not be created yet, because they would replace pods that failed, and for how long. Of failed, the failed
// pods, only those count that were created in the last ten minutes and not before since, when the spec last changed: a pod that ran for
// long says nothing about the next one. Nor does one that was evicted or preempted. Those in replaced have their successors.
func failedHold(failed []*caches.Pod, replaced map[types.UID]struct{}, want int, since, now time.Time) (pods int, delay time.Duration) {
	tolerated := max(failedTolerated, want/failedShare)
	if len(failed) <= tolerated {
		return 0, 0
	}
	oldest := now.Add(-failedWindow)
	var newest time.Time
	recent := 0
	for _, pod := range failed {
		created := pod.CreationTimestamp.Time
		if !created.After(oldest) || created.Before(since) || pod.Disruption.Status == corev1.ConditionTrue {
			continue
		}
		recent++
		if created.After(newest) {
			newest = created
		}
		if _, ok := replaced[pod.UID]; !ok {
			pods++
		}
	}
	if recent <= tolerated {
		return 0, 0
	}
	if newest.After(now) {
		newest = now // the API server's clock is ahead of ours
	}
	doublings := (recent - tolerated - 1) / max(tolerated/failedTolerated, 1)
	delay = newest.Add(min(minFailedBackoff<<min(doublings, 16), maxFailedBackoff)).Sub(now)
	if pods == 0 || delay <= 0 {
		return 0, 0
	}
	return pods, delay
}

// successors are the pods that take the place of failed ones.
type successors struct {
	replaced   map[types.UID]struct{} // failed pods that have successors, or need none
	reported   int                    // how many failed pods there were when the user was last told that they hold up creates
	generation int64                  // of the spec that pods were last created for; 0: none yet in this term
	specSince  time.Time              // when it last changed; zero: not since the term began
}

// observeSpec notes when the spec changes. acted is the generation that the status tells of.
func (s *successors) observeSpec(generation, acted int64, now time.Time) {
	if s.generation != generation && (s.generation != 0 || acted != generation) {
		s.specSince = now
	}
	s.generation = generation
}

// complete notes that all the failed pods have successors, or need none.
func (s *successors) complete(failed []*caches.Pod) {
	s.replaced = nil
	for _, pod := range failed {
		if s.replaced == nil {
			s.replaced = make(map[types.UID]struct{}, len(failed))
		}
		s.replaced[pod.UID] = struct{}{}
	}
}
