package tainteviction

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ledger holds the state of evictions that the pod cache does not show. It is empty outside a term.
type ledger struct {
	lock sync.Mutex
	pods map[types.UID]entry
}

type entry struct {
	seen       time.Time // first sync of the pod, or of its tainted node
	due        time.Time // its deadline; zero if it has none
	countdowns []countdown
	started    bool // the event was sent
}

func (e entry) isPending() bool { return !e.due.IsZero() }

func (l *ledger) clear() {
	l.lock.Lock()
	defer l.lock.Unlock()
	clear(l.pods)
}

func (l *ledger) contains(pod types.UID) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	_, ok := l.pods[pod]
	return ok
}

// observe returns the entry of a pod, and creates the entry at first sight.
func (l *ledger) observe(pod types.UID, now time.Time) entry {
	return l.change(pod, func(e entry) entry {
		if e.seen.IsZero() {
			e.seen = now
		}
		return e
	})
}

// setDecision records the deadline and the countdowns of a pod.
func (l *ledger) setDecision(pod types.UID, d decision) {
	l.change(pod, func(e entry) entry { e.due, e.countdowns = d.due, d.countdowns; return e })
}

// setStarted records the start of an eviction. It returns false if the eviction was started before.
func (l *ledger) setStarted(pod types.UID) (first bool) {
	l.change(pod, func(e entry) entry { first, e.started = !e.started, true; return e })
	return first
}

// drop removes the entry of a pod and returns it.
func (l *ledger) drop(pod types.UID) entry {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := l.pods[pod]
	delete(l.pods, pod)
	return e
}

func (l *ledger) change(pod types.UID, edit func(entry) entry) entry {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := edit(l.pods[pod])
	l.pods[pod] = e
	return e
}

// countPending returns the number of pods with a deadline, for a metric.
func (l *ledger) countPending() (n int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, e := range l.pods {
		if e.isPending() {
			n++
		}
	}
	return n
}
