package replicaset

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controller"
)

func TestStateOfAllReplicaSets(t *testing.T) {
	all := controller.NewKeyStates[cache.ObjectName](newState)
	key := cache.NewObjectName("default", "web")
	all.For(key, "one")
	record := func(until []time.Time, met bool, now time.Time) {
		all.Update(key, func(s *state) { s.record(until, met, now) })
	}
	soon, late := now.Add(time.Second), now.Add(time.Minute)
	record([]time.Time{late, late}, false, now)
	record([]time.Time{soon, late, late}, false, now.Add(time.Second))
	if n, d := unanswered(all, now), longestMismatch(all, now.Add(time.Minute)); n != 3 || d != time.Minute {
		t.Errorf("%d unanswered, mismatch for %v; want 3 and 1m", n, d)
	}
	if at, end := unanswered(all, soon), unanswered(all, late); at != 2 || end != 0 {
		t.Errorf("%d and later %d unanswered, want 2, and none that can no longer be carried out", at, end)
	}
	record(nil, true, now)
	if n, d := unanswered(all, now), longestMismatch(all, now.Add(time.Minute)); n != 0 || d != 0 {
		t.Errorf("%d unanswered, mismatch for %v; want none", n, d)
	}
}
