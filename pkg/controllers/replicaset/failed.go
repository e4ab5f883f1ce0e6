package replicaset

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
)

// Back-off of creates while pods fail soon after their creation, for example because kubelets reject the pods.
const (
	failedWindow     = 10 * time.Minute
	failedTolerated  = 3  // in a window, of few replicas
	failedShare      = 10 // of many replicas, one in ten
	minFailedBackoff = 10 * time.Second
	maxFailedBackoff = 5 * time.Minute
)

// failedBackoff returns the number of creates that have to wait because pods failed, and for how long. At most as many creates wait as
// pods have failed. Only pods of the last ten minutes count, because a pod that ran for long says nothing about its successor. Evicted
// and preempted pods do not count.
func failedBackoff(failed []*caches.Pod, want int, now time.Time) (pods int, delay time.Duration) {
	var newest time.Time
	for _, pod := range failed {
		created := pod.CreationTimestamp.Time
		if !created.After(now.Add(-failedWindow)) || pod.Disruption.Status == corev1.ConditionTrue {
			continue
		}
		pods++
		if created.After(newest) {
			newest = created
		}
	}
	tolerated := max(failedTolerated, want/failedShare)
	if pods <= tolerated {
		return 0, 0
	}
	if newest.After(now) {
		newest = now // the clock of the API server may be ahead
	}
	doublings := (pods - tolerated - 1) / max(tolerated/failedTolerated, 1)
	delay = newest.Add(min(minFailedBackoff<<min(doublings, 16), maxFailedBackoff)).Sub(now)
	if delay <= 0 {
		return 0, 0
	}
	return pods, delay
}
