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

// ErrCut is the error of a wait that reached its deadline.
var ErrCut = errors.New("the time of the sync is up")

// Slots limits in-flight writes. It divides the slots between namespaces, and those of a namespace between its keys,
// so that a new namespace finds some. A namespace may hold as many slots as are free, a key as many as are
// free beyond the slots of its namespace. So one key gets a third, one namespace half, and each of n
// namespaces one (n+1)th.
type Slots struct {
	clock clock.WithTicker

	lock        sync.Mutex
	free        int
	byNamespace map[string]int
	byKey       map[cache.ObjectName]int
	waiting     []*Write // in order of arrival
}

// Write is a write in flight, or one that waits for a slot.
type Write struct {
	key      cache.ObjectName
	assigned chan struct{} // closed with the slot
}

// New returns n slots.
func New(clk clock.WithTicker, n int) *Slots {
	return &Slots{clock: clk, free: n, byNamespace: map[string]int{}, byKey: map[cache.ObjectName]int{}}
}

// RunEach calls do with 0 to n-1, each call in a goroutine with a slot, and waits for all calls. It returns
// the number of calls. If that is less than n, the error is ErrCut after until, or controller.ErrDraining
// at the end of the term.
func (s *Slots) RunEach(ctx context.Context, key cache.ObjectName, until time.Time, n int, do func(i int)) (begun int, err error) {
	var calls controller.Group
	for i := range n {
		w := s.Acquire(ctx, key, until)
		if w == nil {
			err = ErrCut
			if controller.Draining(ctx) {
				err = controller.ErrDraining
			}
			break
		}
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
	w := &Write{key: key, assigned: make(chan struct{})}
	s.lock.Lock()
	s.waiting = append(s.waiting, w)
	s.assignSlotsLocked()
	s.lock.Unlock()
	select {
	case <-w.assigned:
		return w
	default:
	}
	timer := s.clock.NewTimer(until.Sub(s.clock.Now()))
	defer timer.Stop()
	select {
	case <-w.assigned:
	case <-timer.C():
	case <-controller.Term(ctx).Done():
	case <-ctx.Done():
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return nil
	}
	return w
}

// Release ends a write.
func (s *Slots) Release(w *Write) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.addLocked(w.key, -1)
	s.assignSlotsLocked()
}

// assignSlotsLocked assigns free slots to waiting writes.
func (s *Slots) assignSlotsLocked() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *Write) bool {
		if s.byKey[w.key] >= s.free-s.byNamespace[w.key.Namespace] {
			return false
		}
		s.addLocked(w.key, 1)
		close(w.assigned)
		return true
	})
}

// addLocked adds n to the slots that the key holds.
func (s *Slots) addLocked(key cache.ObjectName, n int) {
	s.free -= n
	if s.byNamespace[key.Namespace] += n; s.byNamespace[key.Namespace] == 0 {
		delete(s.byNamespace, key.Namespace)
	}
	if s.byKey[key] += n; s.byKey[key] == 0 {
		delete(s.byKey, key)
	}
}
