package replicaset

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controller"
)

func TestLongestMismatch(t *testing.T) {
	all := controller.NewKeyStates[cache.ObjectName](newState)
	key := cache.NewObjectName("default", "web")
	all.For(key, "one")
	all.For(cache.NewObjectName("default", "db"), "two")
	for _, step := range []struct {
		matches bool
		want    time.Duration
	}{{false, 10 * time.Second}, {false, 10 * time.Second}, {true, 0}, {false, 7 * time.Second}} {
		now := now.Add(10*time.Second - step.want)
		all.Update(key, func(s *state) { s.recordMatch(step.matches, now) })
	}
	if d := longestMismatch(all, now.Add(10*time.Second)); d != 7*time.Second {
		t.Errorf("mismatch for %v, want 7s", d)
	}
}
