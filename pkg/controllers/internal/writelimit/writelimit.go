// Package slots bounds the writes that a controller has in flight, and divides them between namespaces and keys, so that nobody who is slow keeps others
// from theirs.
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

// writePatience is how long a write counts as quick: many times what one takes that nothing holds up.
const writePatience = time.Second

// ErrCut says that the time for which a slot could be waited for is over.
var ErrCut = errors.New("the time of the sync is up")

// Slots bound the writes in flight. Two bounds hold: one on quick writes, those that have been in flight for less than writePatience, because
// more of them do not make an API server faster; a much higher one on all, because a write that waits for a webhook costs the API server little.
//
// Under each bound everybody leaves room for others: see [share].
type Slots struct {
	clock clock.WithTicker

	lock    sync.Mutex
	quick   share
	all     share
	young   []*Write  // that count as quick, in the order of their start
	waiting []*waiter // in the order in which they came
}

// Write is one write in flight.
type Write struct {
	key   cache.ObjectName
	start time.Time
	old   bool // no longer quick
}

// waiter waits for a slot.
type waiter struct {
	key   cache.ObjectName
	write *Write        // its slot; nil: it waits. Guarded by the lock of the slots
	got   chan struct{} // closed when it has its slot
}

// New returns slots for so many quick writes, and so many in all.
func New(clk clock.WithTicker, quick, all int) *Slots {
	return &Slots{clock: clk, quick: newShare(quick), all: newShare(all)}
}

// Each calls do with 0 to n-1, each call in a goroutine that holds a slot, and returns when all have returned. It returns how many it began,
// and if not all, why: ErrCut when the time is up, until; controller.ErrDraining when the term is.
func (s *Slots) Each(ctx context.Context, key cache.ObjectName, until time.Time, n int, do func(i int)) (begun int, err error) {
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
	_ = calls.Wait() // which panics if a call has
	return begun, err
}

// Acquire waits for a slot until the given time, or until the term has ended. The write that it returns must be released; nil: there is none.
func (s *Slots) Acquire(ctx context.Context, key cache.ObjectName, until time.Time) *Write {
	s.lock.Lock()
	t := &waiter{key: key, got: make(chan struct{})}
	s.waiting = append(s.waiting, t)
	s.serve()
	s.lock.Unlock()
	for {
		s.lock.Lock()
		now := s.clock.Now()
		if t.write == nil && (!now.Before(until) || controller.Draining(ctx) || ctx.Err() != nil) {
			s.waiting = slices.DeleteFunc(s.waiting, func(other *waiter) bool { return other == t })
			s.lock.Unlock()
			return nil
		}
		wake := until
		if len(s.young) > 0 { // when it is old there may be room
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
			s.lock.Lock()
			s.serve()
			s.lock.Unlock()
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
	s.serve()
}

// serve gives slots to those who wait and may have one. The lock is held.
func (s *Slots) serve() {
	now := s.clock.Now()
	for len(s.young) > 0 && now.Sub(s.young[0].start) >= writePatience {
		s.young[0].old = true
		s.quick.add(s.young[0].key, -1)
		s.young = s.young[1:]
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(t *waiter) bool {
		if !s.quick.admits(t.key) || !s.all.admits(t.key) {
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

// share divides slots between namespaces, and those of a namespace between its keys, so that a newcomer always finds some free. A namespace may hold as
// many as are left free, a key as many as are left free beyond those of its namespace. So a single key gets a third of all, a single namespace
// half, and each of n namespaces one (n+1)th.
type share struct {
	left        int
	byNamespace map[string]int
	byKey       map[cache.ObjectName]int
}

func newShare(n int) share {
	return share{left: n, byNamespace: map[string]int{}, byKey: map[cache.ObjectName]int{}}
}

// admits reports whether a key may have one more.
func (s *share) admits(key cache.ObjectName) bool {
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
