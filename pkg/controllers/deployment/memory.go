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

	rollout rollingOut
}

// rollingOut is the progress of a rollout. It is zero between rollouts.
type rollingOut struct {
	progressedAt    time.Time
	minReadySeconds time.Duration // a rollout may stand still for that long between two steps
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

// note says how a sync finds or leaves its key: whether no rollout is under way, and whether one has moved.
func (m *memories) note(t task, finished, moved bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	known := m.byKey[t.key]
	switch {
	case known == nil:
		return
	case finished:
		known.rollout = rollingOut{}
		return
	case moved || known.rollout.progressedAt.IsZero():
		known.rollout.progressedAt = t.now
	}
	known.rollout.minReadySeconds = time.Duration(t.d.Spec.MinReadySeconds) * time.Second
}

// longestStalled returns the longest time without progress of any rollout beyond its minReadySeconds, or 0 between rollouts.
func (m *memories) longestStalled(now time.Time) (stalled time.Duration) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, known := range m.byKey {
		if r := known.rollout; !r.progressedAt.IsZero() {
			stalled = max(stalled, now.Sub(r.progressedAt)-r.minReadySeconds)
		}
	}
	return stalled
}
