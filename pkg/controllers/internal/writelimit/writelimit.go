// Package writelimit limits the in-flight writes of a controller, fairly per namespace and key.
package writelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
)

// writePatience is the time for which a write counts as quick: many times the duration of an undisturbed write.
const writePatience = time.Second

// ErrCut is the error of a wait that reached its deadline.
var ErrCut = errors.New("the time of the sync is up")

// Slots limits in-flight writes with two limits. The lower one is for quick writes, that is for the first
// writePatience of each write: more quick writes do not make an API server faster. The higher one is for all
// writes: a write that waits for a webhook costs the API server little.
//
// Under each limit every namespace and key leaves room for others; see [share].
type Slots struct {
	clock clock.WithTicker

	lock    sync.Mutex
	quick   share
	all     share
	young   []*Write  // quick writes, in order of start
	waiting []*waiter // in order of arrival
}

// Write is a write in flight.
type Write struct {
	key   cache.ObjectName
	start time.Time
	old   bool
}

// waiter is a request for a slot.
type waiter struct {
	key   cache.ObjectName
	write *Write        // set with the slot, under the lock of the slots
	got   chan struct{} // closed with the slot
}

// New returns slots with a limit for quick writes and a limit for all writes.
func New(clk clock.WithTicker, quick, all int) *Slots {
	return &Slots{clock: clk, quick: newShare(quick), all: newShare(all)}
}

// RunEach calls do with 0 to n-1, each call in a goroutine with a slot, and waits for all calls. It returns
// the number of calls. If that is less than n, the error is ErrCut after until, or controller.ErrDraining
// at the end of the term.
func (s *Slots) RunEach(ctx context.Context, key cache.ObjectName, until time.Time, n int, do func(i int)) (begun int, err error) {
	var calls controller.Group
	for begun < n {
		w := s.Acquire(ctx, key, until)
		if w == nil {
			err = ErrCut
			if controller.Draining(ctx) {
				err = controller.ErrDraining
			}
			break
		}
		i := begun
		calls.Go(func() error {
			defer s.Release(w)
			do(i)
			return nil
		})
		begun++
	}
	_ = calls.Wait() // panics if a call panicked
	return begun, err
}

// Acquire waits for a slot until the given time or the end of the term. It returns nil if it gets none. The
// caller releases the write.
func (s *Slots) Acquire(ctx context.Context, key cache.ObjectName, until time.Time) *Write {
	s.lock.Lock()
	t := &waiter{key: key, got: make(chan struct{})}
	s.waiting = append(s.waiting, t)
	s.lock.Unlock()
	for {
		s.lock.Lock()
		s.assignSlots()
		now := s.clock.Now()
		if t.write == nil && (!now.Before(until) || controller.Draining(ctx) || ctx.Err() != nil) {
			s.waiting = slices.DeleteFunc(s.waiting, func(other *waiter) bool { return other == t })
			s.lock.Unlock()
			return nil
		}
		wake := until
		if len(s.young) > 0 { // the oldest quick write may make room then
			if next := s.young[0].start.Add(writePatience); next.Before(wake) {
				wake = next
			}
		}
		given := t.write
		s.lock.Unlock()
		if given != nil {
			return given
		}
		timer := s.clock.NewTimer(max(wake.Sub(now), time.Millisecond))
		select {
		case <-t.got:
		case <-timer.C():
		case <-controller.TermDone(ctx):
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Release ends a write.
func (s *Slots) Release(w *Write) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !w.old {
		s.young = slices.DeleteFunc(s.young, func(y *Write) bool { return y == w })
		s.quick.add(w.key, -1)
	}
	s.all.add(w.key, -1)
	s.assignSlots()
}

// assignSlots assigns free slots to waiters. The caller holds the lock.
func (s *Slots) assignSlots() {
	now := s.clock.Now()
	for len(s.young) > 0 && now.Sub(s.young[0].start) >= writePatience {
		s.young[0].old = true
		s.quick.add(s.young[0].key, -1)
		s.young = s.young[1:]
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(t *waiter) bool {
		if !s.quick.canAdd(t.key) || !s.all.canAdd(t.key) {
			return false
		}
		t.write = &Write{key: t.key, start: now}
		s.young = append(s.young, t.write)
		s.quick.add(t.key, 1)
		s.all.add(t.key, 1)
		close(t.got)
		return true
	})
}

// share divides slots between namespaces, and the slots of a namespace between its keys, so that a new one
// always finds some. A namespace may hold as many slots as are free, a key as many as are free beyond the
// slots of its namespace. So one key gets a third, one namespace half, and each of n namespaces one
// (n+1)th.
type share struct {
	left        int
	byNamespace map[string]int
	byKey       map[cache.ObjectName]int
}

func newShare(n int) share {
	return share{left: n, byNamespace: map[string]int{}, byKey: map[cache.ObjectName]int{}}
}

// canAdd reports whether a key may hold one more slot.
func (s *share) canAdd(key cache.ObjectName) bool {
	return s.byKey[key] < s.left-s.byNamespace[key.Namespace]
}

func (s *share) add(key cache.ObjectName, n int) {
	s.left -= n
	if s.byNamespace[key.Namespace] += n; s.byNamespace[key.Namespace] == 0 {
		delete(s.byNamespace, key.Namespace)
	}
	if s.byKey[key] += n; s.byKey[key] == 0 {
		delete(s.byKey, key)
	}
}
