package replicaset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/ownership"
)

type states = controller.KeyStates[cache.ObjectName, state]

// state is the state of one ReplicaSet during a term.
type state struct {
	expectations expectations
	backoffs     backoffs

	mismatchSince time.Time // zero while the number of active pods is right; set with KeyStates.Update
}

func newState() *state { return &state{expectations: newExpectations()} }

func (s *state) recordMatch(matches bool, now time.Time) {
	if matches {
		s.mismatchSince = time.Time{}
	} else if s.mismatchSince.IsZero() {
		s.mismatchSince = now
	}
}

// longestMismatch returns the longest time for which a ReplicaSet has not had the wanted number of pods.
func longestMismatch(all *states, now time.Time) (longest time.Duration) {
	all.ForEach(func(s *state) {
		if !s.mismatchSince.IsZero() {
			longest = max(longest, now.Sub(s.mismatchSince))
		}
	})
	return longest
}

// backoffs holds the retry state of one ReplicaSet.
type backoffs struct {
	batchSize        int       // size of the slow-start batch that the last sync did not finish; 0 if none
	reportedFailures int       // in the last event
	newestFailed     time.Time // creation of the newest failed pod, by the clock of the API server
	newestSeen       time.Time // first sync with that pod
	retriedFailed    time.Time // newestFailed when creates were last allowed again
	foreignAt        time.Time // start of the sync whose new pod a webhook changed

	ownership ownership.State

	statusAt   time.Time     // time of the last status write
	statusTook time.Duration // duration of the last status write
}

// Back-off of creates while pods fail soon after their creation, for example because kubelets reject the pods.
const (
	failedWindow     = 10 * time.Minute
	failedTolerated  = 3  // in a window, of few replicas
	failedShare      = 10 // of many replicas, one in ten
	minFailedBackoff = 10 * time.Second
	maxFailedBackoff = 5 * time.Minute
)

// failedBackoff returns the number of creates that have to wait because pods failed, and for how long. At most as many
// creates wait as pods have failed. Only pods of the last ten minutes count: one that ran for longer has a reason of
// its own. Evicted and preempted pods do not count. Only failures after a retry raise the delay: pods that fail
// together may have one passing cause.
func (b *backoffs) failedBackoff(failed []*caches.Pod, want int, now time.Time) (pods int, delay time.Duration) {
	var created []time.Time
	for _, pod := range failed {
		if creation := pod.CreationTimestamp.Time; creation.After(now.Add(-failedWindow)) && pod.Disruption.Status != corev1.ConditionTrue {
			created = append(created, creation)
		}
	}
	tolerated := max(failedTolerated, want/failedShare)
	if len(created) <= tolerated {
		return 0, 0
	}
	newest := slices.MaxFunc(created, time.Time.Compare)
	if !newest.Equal(b.newestFailed) {
		b.newestFailed, b.newestSeen = newest, now
	}
	doublings := 0
	if newest.After(b.retriedFailed) && newest.Sub(b.retriedFailed) < failedWindow {
		doublings = (len(created) - tolerated - 1) / max(tolerated/failedTolerated, 1)
	}
	passed := max(now.Sub(newest), now.Sub(b.newestSeen)) // the clock of the API server may be ahead
	delay = min(minFailedBackoff<<min(doublings, 16), maxFailedBackoff) - passed
	if delay <= 0 {
		b.retriedFailed = newest
		return 0, 0
	}
	return len(created), delay
}
