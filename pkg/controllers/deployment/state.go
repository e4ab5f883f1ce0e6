package deployment

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controller"
)

type states = controller.KeyStates[cache.ObjectName, state]

// state is the state of one Deployment during a term.
type state struct {
	expectations expectations
	backoffs     backoffs

	// Updated with KeyStates.Update. progressedAt is zero between rollouts.
	progressedAt    time.Time
	minReadySeconds time.Duration // a rollout may stand still for that long between two steps
}

func newState() *state { return &state{expectations: newExpectations(), backoffs: newBackoffs()} }

// record stores the progress of a rollout.
func (s *state) record(t syncState, finished, progressed bool) {
	switch {
	case finished:
		s.progressedAt = time.Time{}
	case progressed || s.progressedAt.IsZero():
		s.progressedAt = t.now
	}
	s.minReadySeconds = time.Duration(t.d.Spec.MinReadySeconds) * time.Second
}

// longestStalled returns the longest time without progress of any rollout beyond its minReadySeconds, or 0 between rollouts.
func longestStalled(all *states, now time.Time) (stalled time.Duration) {
	all.ForEach(func(s *state) {
		if !s.progressedAt.IsZero() {
			stalled = max(stalled, now.Sub(s.progressedAt)-s.minReadySeconds)
		}
	})
	return stalled
}
