package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

func TestTheEarliestDeadlineIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		due := map[string]time.Time{"late": start.Add(3 * time.Second), "early": start.Add(time.Second), "early, too": start.Add(time.Second)}
		var order []string
		cfg := LoopConfig{Controller: "test-controller", Queue: "test", Workers: 1, Clock: clock.RealClock{}}
		l := NewLoopByDeadline(cfg, prometheus.NewRegistry(), func(key string) time.Time { return due[key] }, func(_ context.Context, key string) (Result, error) {
			order = append(order, key)
			time.Sleep(900 * time.Millisecond) // less than makes a sync slow
			return Result{}, nil
		})
		end := term(l, "busy")
		synctest.Wait()
		for _, key := range []string{"late", "early", "none", "early, too", "late"} {
			l.Add(key)
		}
		time.Sleep(500 * time.Millisecond)
		due["late"] = start // called once only
		time.Sleep(time.Minute)
		end()
		if want := []string{"busy", "none", "early", "early, too", "late"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	})
}

func TestWhenNothingWaitsLittleIsKept(t *testing.T) {
	q := byDeadline[int]{due: func(int) time.Time { return time.Time{} }}
	for key := range 2 * manyKeys {
		q.Push(key)
	}
	for key := range 2 * manyKeys {
		if got := q.Pop(); got != key {
			t.Fatalf("served %d, want %d", got, key)
		}
	}
	if cap(q.heap) > 0 {
		t.Errorf("there is room for %d keys", cap(q.heap))
	}
	q.Push(1)
	if got := q.Pop(); got != 1 || q.Len() != 0 {
		t.Errorf("served %d, and %d wait, want 1 and none", got, q.Len())
	}
}

// A waiting key can move forward.
func TestAKeyThatIsAddedAgainMovesForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
		due := map[string]time.Time{"a": at(5), "b": at(2), "c": at(3), "d": at(9)}
		var order []string
		cfg := LoopConfig{Controller: "test-controller", Queue: "test", Workers: 1, Clock: clock.RealClock{}}
		l := NewLoopByDeadline(cfg, prometheus.NewRegistry(), func(key string) time.Time { return due[key] }, func(_ context.Context, key string) (Result, error) {
			order = append(order, key)
			time.Sleep(900 * time.Millisecond)
			return Result{}, nil
		})
		end := term(l, "busy")
		synctest.Wait()
		for _, key := range []string{"a", "b", "c", "d"} {
			l.Add(key)
		}
		due["d"] = at(1)
		l.Add("d")
		due["a"] = at(4)
		l.Add("a")
		due["b"] = at(8)
		l.Add("b") // later: it keeps its place
		time.Sleep(time.Minute)
		l.Add("a")
		time.Sleep(time.Minute)
		end()
		if want := []string{"busy", "d", "b", "c", "a", "a"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	})
}
