package replicaset

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
)

func TestFailedHold(t *testing.T) {
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
		name     string
		failed   []*caches.Pod
		replaced int // how many of them have successors
		want     int
		since    time.Time // of the spec
		held     int
		delay    time.Duration
	}{
		{name: "none"},
		{name: "three are tolerated", failed: repeat(3, 0)},
		{name: "the fourth waits ten seconds", failed: repeat(4, 0), replaced: 3, held: 1, delay: 10 * time.Second},
		{name: "only those without a successor", failed: repeat(7, 0), replaced: 5, held: 2, delay: 80 * time.Second},
		{name: "all have successors", failed: repeat(7, 0), replaced: 7},
		{name: "counted from the newest", failed: failed(0, 9*time.Second, 8*time.Second, 4*time.Second), held: 4, delay: 10 * time.Second},
		{name: "part of it has passed", failed: repeat(4, 4*time.Second), held: 4, delay: 6 * time.Second},
		{name: "all of it has passed", failed: repeat(4, 10*time.Second)},
		{name: "the fifth twice as long", failed: repeat(5, 0), held: 5, delay: 20 * time.Second},
		{name: "never longer than five minutes", failed: repeat(500, 0), held: 500, delay: 5 * time.Minute},
		{name: "of many replicas a tenth is tolerated", failed: repeat(100, 0), want: 1000},
		{name: "and no more", failed: repeat(101, 0), want: 1000, held: 101, delay: 10 * time.Second},
		{name: "a third of that doubles the delay", failed: repeat(134, 0), want: 1000, held: 134, delay: 20 * time.Second},
		{name: "old ones do not count", failed: append(repeat(9, 10*time.Minute), repeat(3, 0)...)},
		{name: "those of an older spec do not count", failed: repeat(9, time.Minute), since: now.Add(-30 * time.Second)},
		{name: "those that were evicted do not count", failed: evicted(repeat(9, 0))},
		{name: "created in the future, by another clock", failed: repeat(4, -time.Hour), held: 4, delay: 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s successors
			s.complete(tt.failed[:tt.replaced])
			held, delay := failedHold(tt.failed, s.replaced, tt.want, tt.since, now)
			if held != tt.held || delay != tt.delay {
				t.Errorf("%d pods are held for %v, want %d for %v", held, delay, tt.held, tt.delay)
			}
		})
	}
}
