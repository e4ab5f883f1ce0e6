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

	// Updated with KeyStates.Update.
	unanswered []time.Time // by when the fate is decided of each create that was not answered
	unmet      time.Time   // since when the number of active pods has been wrong
}

func newState() *state { return &state{ledger: newLedger()} }

// record stores the result of a sync for the metrics.
func (s *state) record(unanswered []time.Time, met bool, now time.Time) {
	s.unanswered = unanswered
	if met {
		s.unmet = time.Time{}
	} else if s.unmet.IsZero() {
		s.unmet = now
	}
}

// unanswered returns the number of creates that may still be carried out.
func unanswered(all *states, now time.Time) (n int) {
	all.ForEach(func(s *state) {
		for _, until := range s.unanswered {
			if until.After(now) {
				n++
			}
		}
	})
	return n
}

// longestMismatch returns the longest time for which a ReplicaSet has not had the number of pods it wants.
func longestMismatch(all *states, now time.Time) (longest time.Duration) {
	all.ForEach(func(s *state) {
		if !s.unmet.IsZero() {
			longest = max(longest, now.Sub(s.unmet))
		}
	})
	return longest
}
