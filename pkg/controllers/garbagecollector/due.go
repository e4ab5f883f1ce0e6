package garbagecollector

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// perDependent is how much later each further dependent of one owner is due than the one before: about as long as one delete takes when many are
// in flight. So an owner with ten dependents does not wait behind one with fifty thousand that was deleted before it.
const perDependent = time.Millisecond

// dues are the times by which objects that were woken should be looked at; the queue serves the earliest first.
type dues struct {
	clock clock.PassiveClock

	lock sync.Mutex
	at   map[id]time.Time
}

func newDues(c clock.PassiveClock) *dues { return &dues{clock: c, at: map[id]time.Time{}} }

// note keeps the earliest time of each object.
func (d *dues) note(objects []suspect) {
	now := d.clock.Now()
	d.lock.Lock()
	defer d.lock.Unlock()
	for _, o := range objects {
		due := now.Add(time.Duration(o.nth) * perDependent)
		if before, ok := d.at[o.id]; !ok || due.Before(before) {
			d.at[o.id] = due
		}
	}
}

// of is when an object is due: now, if nothing has woken it but its own timer.
func (d *dues) of(key id) time.Time {
	d.lock.Lock()
	defer d.lock.Unlock()
	if due, ok := d.at[key]; ok {
		return due
	}
	return d.clock.Now()
}

// begin forgets when an object was due, because it is being looked at.
func (d *dues) begin(key id) {
	d.lock.Lock()
	defer d.lock.Unlock()
	delete(d.at, key)
	if len(d.at) == 0 { // a map does not become smaller by itself
		d.at = map[id]time.Time{}
	}
}

// reset forgets everything, at the beginning of a term.
func (d *dues) reset() {
	d.lock.Lock()
	defer d.lock.Unlock()
	clear(d.at)
}
