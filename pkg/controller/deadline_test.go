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
		due["late"] = start // asked once only
		time.Sleep(time.Minute)
		end()
		if want := []string{"busy", "none", "early", "early, too", "late"}; !slices.Equal(order, want) {
			t.Errorf("served %v, want %v", order, want)
		}
	})
}
