package replicaset

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
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

func TestFailedBackoff(t *testing.T) {
	failed := func(ages ...time.Duration) []*caches.Pod {
		var pods []*caches.Pod
		for i, age := range ages {
			pods = append(pods, newPod(fmt.Sprint(i), createdAt(ago(age))))
		}
		return pods
	}
	repeat := func(n int, age time.Duration) []*caches.Pod {
		ages := make([]time.Duration, n)
		for i := range ages {
			ages[i] = age
		}
		return failed(ages...)
	}
	evicted := func(pods []*caches.Pod) []*caches.Pod {
		for _, pod := range pods {
			pod.Disruption.Status = corev1.ConditionTrue
		}
		return pods
	}
	for _, tt := range []struct {
		name   string
		failed []*caches.Pod
		want   int
		held   int
		delay  time.Duration
	}{
		{name: "none"},
		{name: "three are tolerated", failed: repeat(3, 0)},
		{name: "four wait ten seconds", failed: repeat(4, 0), held: 4, delay: 10 * time.Second},
		{name: "counted from the newest", failed: failed(0, 9*time.Second, 8*time.Second, 4*time.Second), held: 4, delay: 10 * time.Second},
		{name: "part of it has passed", failed: repeat(4, 4*time.Second), held: 4, delay: 6 * time.Second},
		{name: "all of it has passed", failed: repeat(4, 10*time.Second)},
		{name: "five wait twice as long", failed: repeat(5, 0), held: 5, delay: 20 * time.Second},
		{name: "never longer than five minutes", failed: repeat(500, 0), held: 500, delay: 5 * time.Minute},
		{name: "of many replicas a tenth is tolerated", failed: repeat(100, 0), want: 1000},
		{name: "and no more", failed: repeat(101, 0), want: 1000, held: 101, delay: 10 * time.Second},
		{name: "a third of that doubles the delay", failed: repeat(134, 0), want: 1000, held: 134, delay: 20 * time.Second},
		{name: "old ones do not count", failed: append(repeat(9, 10*time.Minute), repeat(3, 0)...)},
		{name: "evicted pods do not count", failed: append(evicted(repeat(9, 0)), repeat(3, 0)...)},
		{name: "created in the future, by another clock", failed: repeat(4, -time.Hour), held: 4, delay: 10 * time.Second},
	} {
		if held, delay := failedBackoff(tt.failed, tt.want, now); held != tt.held || delay != tt.delay {
			t.Errorf("%s: %d creates wait for %v, want %d for %v", tt.name, held, delay, tt.held, tt.delay)
		}
	}
}
