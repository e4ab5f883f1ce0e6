package writelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/internal/faket"
	"minikcm/pkg/controller"
)

func TestMain(m *testing.M) { faket.Main(m) }

func keyOf(namespace, name string) cache.ObjectName { return cache.NewObjectName(namespace, name) }

func TestShareLeavesRoomForOthers(t *testing.T) {
	var crowd []cache.ObjectName
	for i := range 1000 {
		crowd = append(crowd, keyOf("a", fmt.Sprint(i)))
	}
	for _, tt := range []struct {
		name       string
		keys       []cache.ObjectName
		first, all int // slots of the first key and of all keys
	}{
		{"two keys of a namespace have a fifth each", crowd[:2], 20, 39},
		{"keys of two namespaces have a quarter each", []cache.ObjectName{crowd[0], keyOf("b", "1")}, 24, 48},
		{"a namespace of a thousand keys has half", crowd, 1, 48},
	} {
		s, now := New(clock.RealClock{}, 96), time.Now()
		for more := true; more; {
			more = false
			for _, key := range tt.keys {
				more = s.Acquire(t.Context(), key, now) != nil || more
			}
		}
		fakeapi.Want(t, tt.name+": slots of the first key", s.byKey[tt.keys[0]], tt.first)
		fakeapi.Want(t, tt.name+": slots of all keys", 96-s.free, tt.all)
		fakeapi.Want(t, tt.name+": another namespace gets a slot", s.Acquire(t.Context(), keyOf("other", "1"), now) != nil, true)
	}
}

// timerClock counts timers.
type timerClock struct {
	clock.RealClock
	timers atomic.Int32
}

func (c *timerClock) NewTimer(d time.Duration) clock.Timer {
	c.timers.Add(1)
	return c.RealClock.NewTimer(d)
}

func TestHangingWritesLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := &timerClock{}
		s := New(clk, 300)
		start, until := time.Now(), time.Now().Add(20*time.Second)
		var inFlight atomic.Int32
		var waiting sync.WaitGroup
		for range 500 {
			waiting.Go(func() {
				if s.Acquire(t.Context(), keyOf("slow", "hung"), until) != nil {
					inFlight.Add(1)
				}
			})
		}
		waiting.Wait()
		fakeapi.Want(t, "writes of one key, a third of the slots", inFlight.Load(), 100)
		fakeapi.Want(t, "wait of the others", time.Since(start), 20*time.Second)
		fakeapi.Want(t, "timers of waiting writes", clk.timers.Load(), 400)
		fakeapi.Want(t, "slot of another namespace", s.Acquire(t.Context(), keyOf("quick", "rs"), start) != nil, true)
	})
}

func TestReleasedSlotGoesToLongestWaitingWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(clock.RealClock{}, 1)
		held := s.Acquire(t.Context(), keyOf("a", "1"), time.Now().Add(time.Hour))
		var order []string
		for _, name := range []string{"first", "second"} {
			go func() {
				w := s.Acquire(t.Context(), keyOf(name, "rs"), time.Now().Add(time.Hour))
				s.lock.Lock()
				order = append(order, name)
				s.lock.Unlock()
				s.Release(w)
			}()
			synctest.Wait()
		}
		s.Release(held)
		synctest.Wait()
		fakeapi.WantEqual(t, "order", order, []string{"first", "second"})
	})
}

// A write whose term has ended would never release a slot.
func TestEndedWaitGetsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := New(clock.RealClock{}, 1), time.Now()
		held := s.Acquire(t.Context(), keyOf("a", "1"), start.Add(time.Hour))
		loop := controller.NewLoop(controller.LoopConfig{Controller: "c", Workers: 1, Clock: clock.RealClock{}}, prometheus.NewRegistry(),
			func(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
				if w := s.Acquire(ctx, key, start.Add(time.Hour)); w != nil || time.Since(start) != time.Minute {
					t.Errorf("it has %+v after %v, want nothing after a minute", w, time.Since(start))
				}
				return controller.Result{}, nil
			})
		term, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		loop.Run(term, func() []cache.ObjectName { return []cache.ObjectName{keyOf("b", "1")} })
		s.Release(held)
		fakeapi.Want(t, "the released slot is free", s.Acquire(t.Context(), keyOf("c", "1"), time.Now()) != nil, true)
	})
}

// A panic of a call becomes a panic of RunEach after all calls have returned, and the slot is released.
func TestRunEachPanicsWithTheCall(t *testing.T) {
	s := New(clock.RealClock{}, 10)
	returned := 0
	err := controller.Contain(func() error {
		_, err := s.RunEach(t.Context(), keyOf("a", "1"), time.Now().Add(time.Minute), 2, func(i int) {
			if i == 0 {
				panic("an odd pod")
			}
			returned++
		})
		return err
	})
	if panicked := controller.PanicError(""); !errors.As(err, &panicked) || returned != 1 || s.free != 10 {
		t.Errorf("%v, %d returned, %d slots left; want the panic, 1, 10", err, returned, s.free)
	}
}
