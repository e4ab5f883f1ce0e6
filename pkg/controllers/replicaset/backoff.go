package replicaset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
)

// Back-off of creates that the API server refuses.
const (
	minCreateBackoff = time.Second
	maxCreateBackoff = time.Minute
)

// createBackoff holds back creates after a refusal. It is apart from the queue, so events that wake the ReplicaSet neither bypass
// nor lengthen it, and deletes and status go on. A change of the spec ends it.
type createBackoff struct {
	failures   int
	until      time.Time
	generation int64 // of the spec that was refused
}

// refused notes one more sync whose creates were refused. progress means that some were not.
func (b createBackoff) refused(generation int64, progress bool, now time.Time) createBackoff {
	if progress || b.generation != generation {
		b.failures = 0
	}
	delay := min(minCreateBackoff<<min(b.failures, 16), maxCreateBackoff)
	return createBackoff{failures: b.failures + 1, until: now.Add(delay), generation: generation}
}

// wait says how long creates are still held back; zero not at all.
func (b createBackoff) wait(generation int64, now time.Time) time.Duration {
	if b.generation != generation {
		return 0
	}
	return max(b.until.Sub(now), 0)
}

// Back-off of creates whose pods fail soon after, because kubelets refuse them for instance.
const (
	failedWindow     = 10 * time.Minute
	failedTolerated  = 3 // in a window
	minFailedBackoff = 10 * time.Second
	maxFailedBackoff = 5 * time.Minute
)

// failedWait says how long to wait before replacing pods when failed are the failed ones. Only those count that were created in the
// last ten minutes and after since, the time of the last change to the template: a pod that ran for long says nothing about the next one.
// Nor does one that was evicted or preempted.
func failedWait(failed []*caches.Pod, since, now time.Time) time.Duration {
	if len(failed) <= failedTolerated {
		return 0
	}
	horizon := now.Add(-failedWindow)
	recent := slices.DeleteFunc(slices.Clone(failed), func(pod *caches.Pod) bool {
		return !pod.CreationTimestamp.After(horizon) || pod.CreationTimestamp.Time.Before(since) ||
			pod.Disruption.Status == corev1.ConditionTrue
	})
	if len(recent) <= failedTolerated {
		return 0
	}
	newest := recent[0].CreationTimestamp.Time
	for _, pod := range recent {
		if pod.CreationTimestamp.After(newest) {
			newest = pod.CreationTimestamp.Time
		}
	}
	if newest.After(now) {
		newest = now // the API server's clock is ahead of ours
	}
	delay := min(minFailedBackoff<<min(len(recent)-failedTolerated-1, 16), maxFailedBackoff)
	return max(newest.Add(delay).Sub(now), 0)
}
