package replicaset

import (
	"time"

	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controller"
)

type states = controller.KeyStates[cache.ObjectName, state]

// state is the state of one ReplicaSet during a term.
type state struct {
	ledger   ledger
	throttle throttle

	mismatchSince time.Time // zero while the number of active pods is right; set with KeyStates.Update
}

func newState() *state { return &state{ledger: newLedger()} }

func (s *state) recordMatch(matches bool, now time.Time) {
	if matches {
		s.mismatchSince = time.Time{}
	} else if s.mismatchSince.IsZero() {
		s.mismatchSince = now
	}
}

// longestMismatch returns the longest time for which a ReplicaSet has not had the number of pods it wants.
func longestMismatch(all *states, now time.Time) (longest time.Duration) {
	all.ForEach(func(s *state) {
		if !s.mismatchSince.IsZero() {
			longest = max(longest, now.Sub(s.mismatchSince))
		}
	})
	return longest
}
