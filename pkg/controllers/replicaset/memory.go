package replicaset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// memories are what this process remembers of ReplicaSets in a term, one memory per key.
type memories struct {
	lock  sync.Mutex
	byKey map[cache.ObjectName]*memory
}

// memory is what is remembered of one ReplicaSet. Its ledger and its throttle belong to the sync of its key, the rest is guarded by the lock of
// the memories.
type memory struct {
	ledger   *ledger
	throttle *throttle

	unanswered []time.Time // by when the fate is decided of each create that was not answered
	unmet      time.Time   // since when the number of active pods has been wrong; zero: it is right
}

func newMemories() *memories { return &memories{byKey: map[cache.ObjectName]*memory{}} }

// reset forgets everything, as a new term must.
func (m *memories) reset() {
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.byKey)
}

// of returns the memory of a ReplicaSet: a new one if it is new, or new under an old name.
func (m *memories) of(key cache.ObjectName, uid types.UID) *memory {
	m.lock.Lock()
	defer m.lock.Unlock()
	known := m.byKey[key]
	if known == nil || known.ledger.uid != uid {
		known = &memory{ledger: newLedger(uid), throttle: &throttle{}}
		m.byKey[key] = known
	}
	return known
}

func (m *memories) drop(key cache.ObjectName) {
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.byKey, key)
}

// note says how a sync left its key.
func (m *memories) note(key cache.ObjectName, unanswered []time.Time, met bool, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	known := m.byKey[key]
	if known == nil {
		return
	}
	known.unanswered = unanswered
	if met {
		known.unmet = time.Time{}
	} else if known.unmet.IsZero() {
		known.unmet = now
	}
}

// unanswered is the number of creates whose fate is not known: they were not answered, and may still be carried out.
func (m *memories) unanswered(now time.Time) int {
	m.lock.Lock()
	defer m.lock.Unlock()
	n := 0
	for _, known := range m.byKey {
		for _, until := range known.unanswered {
			if until.After(now) {
				n++
			}
		}
	}
	return n
}

// oldestUnmet is for how long the ReplicaSet that waits longest has not had the number of pods it wants; 0 if all have.
func (m *memories) oldestUnmet(now time.Time) time.Duration {
	m.lock.Lock()
	defer m.lock.Unlock()
	var longest time.Duration
	for _, known := range m.byKey {
		if !known.unmet.IsZero() {
			longest = max(longest, now.Sub(known.unmet))
		}
	}
	return longest
}
