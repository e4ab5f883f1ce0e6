package tainteviction

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// ledger holds the state of evictions that the pod cache does not show. It is empty outside a term.
type ledger struct {
	pending prometheus.Gauge

	lock sync.Mutex
	pods map[types.UID]entry
}

type entry struct {
	seen    time.Time // when the pod was first seen on a tainted node
	due     time.Time // its deadline; zero if it has none
	started bool      // the eviction was begun, and its event sent
	deleted bool      // the API server accepted the delete
}

// awaited reports whether the pod's eviction is still to come.
func (e entry) awaited() bool { return !e.due.IsZero() && !e.deleted }

func newLedger(pending prometheus.Gauge) *ledger {
	return &ledger{pending: pending, pods: map[types.UID]entry{}}
}

func (l *ledger) clear() {
	l.lock.Lock()
	defer l.lock.Unlock()
	clear(l.pods)
	l.pending.Set(0)
}

func (l *ledger) knows(pod types.UID) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	_, ok := l.pods[pod]
	return ok
}

// see returns what is known of a pod, noting that it was seen at now if nothing is.
func (l *ledger) see(pod types.UID, now time.Time) entry {
	return l.change(pod, func(e entry) entry {
		if e.seen.IsZero() {
			e.seen = now
		}
		return e
	})
}

// expect notes the pod's deadline.
func (l *ledger) expect(pod types.UID, due time.Time) {
	l.change(pod, func(e entry) entry { e.due = due; return e })
}

// start notes that the eviction was begun. It reports whether that is new.
func (l *ledger) start(pod types.UID) (first bool) {
	l.change(pod, func(e entry) entry { first, e.started = !e.started, true; return e })
	return first
}

// done notes that the API server accepted the delete.
func (l *ledger) done(pod types.UID) {
	l.change(pod, func(e entry) entry { e.deleted = true; return e })
}

// drop forgets a pod and returns what was known of it.
func (l *ledger) drop(pod types.UID) entry {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := l.pods[pod]
	delete(l.pods, pod)
	if e.awaited() {
		l.pending.Dec()
	}
	return e
}

func (l *ledger) change(pod types.UID, edit func(entry) entry) entry {
	l.lock.Lock()
	defer l.lock.Unlock()
	old := l.pods[pod]
	e := edit(old)
	l.pods[pod] = e
	switch {
	case e.awaited() && !old.awaited():
		l.pending.Inc()
	case !e.awaited() && old.awaited():
		l.pending.Dec()
	}
	return e
}
