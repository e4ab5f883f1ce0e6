package deployment

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// memories are what this process remembers of Deployments in a term, one memory per key.
type memories struct {
	lock  sync.Mutex
	byKey map[cache.ObjectName]*memory
}

// memory is what is remembered of one Deployment. Its ledger and its throttle belong to the sync of its key, the rest is guarded by the lock of
// the memories.
type memory struct {
	ledger   *ledger
	throttle *throttle

	unfinished time.Time // since when a rollout has been under way; zero: none is
}

func newMemories() *memories { return &memories{byKey: map[cache.ObjectName]*memory{}} }

// reset forgets everything, as a new term must.
func (m *memories) reset() {
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.byKey)
}

// of returns the memory of a Deployment: a new one if it is new, or new under an old name.
func (m *memories) of(key cache.ObjectName, uid types.UID) *memory {
	m.lock.Lock()
	defer m.lock.Unlock()
	known := m.byKey[key]
	if known == nil || known.ledger.uid != uid {
		known = &memory{ledger: newLedger(uid), throttle: newThrottle()}
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
func (m *memories) note(key cache.ObjectName, finished bool, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	known := m.byKey[key]
	if known == nil {
		return
	}
	if finished {
		known.unfinished = time.Time{}
	} else if known.unfinished.IsZero() {
		known.unfinished = now
	}
}

// oldestUnfinished is for how long the rollout has gone on that takes longest; 0 if none is under way.
func (m *memories) oldestUnfinished(now time.Time) time.Duration {
	m.lock.Lock()
	defer m.lock.Unlock()
	var longest time.Duration
	for _, known := range m.byKey {
		if !known.unfinished.IsZero() {
			longest = max(longest, now.Sub(known.unfinished))
		}
	}
	return longest
}
