package replicaset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// ledgers are the ledgers of one term, one per key.
type ledgers struct {
	lock  sync.Mutex
	byKey map[cache.ObjectName]*entry
}

// entry is a ledger, and what others than its sync may know of it.
type entry struct {
	ledger     *ledger
	unanswered []time.Time // by when the fate is decided of each create that was not answered
	unmet      time.Time   // since when the number of active pods has been wrong; zero: it is right
}

func newLedgers() *ledgers { return &ledgers{byKey: map[cache.ObjectName]*entry{}} }

// reset forgets everything, as a new term must.
func (l *ledgers) reset() {
	l.lock.Lock()
	defer l.lock.Unlock()
	clear(l.byKey)
}

// of returns the ledger of a ReplicaSet: a new one if it is new, or new under an old name.
func (l *ledgers) of(key cache.ObjectName, uid types.UID) *ledger {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := l.byKey[key]
	if e == nil || e.ledger.uid != uid {
		e = &entry{ledger: newLedger(uid)}
		l.byKey[key] = e
	}
	return e.ledger
}

func (l *ledgers) drop(key cache.ObjectName) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.byKey, key)
}

// note records how a sync left its key.
func (l *ledgers) note(key cache.ObjectName, unanswered []time.Time, met bool, now time.Time) {
	l.lock.Lock()
	defer l.lock.Unlock()
	e := l.byKey[key]
	if e == nil {
		return
	}
	e.unanswered = unanswered
	if met {
		e.unmet = time.Time{}
	} else if e.unmet.IsZero() {
		e.unmet = now
	}
}

// unanswered is the number of creates whose fate is not known: they were not answered, and may still be carried out.
func (l *ledgers) unanswered(now time.Time) int {
	l.lock.Lock()
	defer l.lock.Unlock()
	n := 0
	for _, e := range l.byKey {
		for _, until := range e.unanswered {
			if until.After(now) {
				n++
			}
		}
	}
	return n
}

// oldestUnmet is for how long the ReplicaSet that waits longest has not had the number of pods it wants; 0 if all have.
func (l *ledgers) oldestUnmet(now time.Time) time.Duration {
	l.lock.Lock()
	defer l.lock.Unlock()
	var longest time.Duration
	for _, e := range l.byKey {
		if !e.unmet.IsZero() {
			longest = max(longest, now.Sub(e.unmet))
		}
	}
	return longest
}
