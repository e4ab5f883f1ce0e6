package replicaset

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/caches"
)

func TestCreateBackoff(t *testing.T) {
	var b createBackoff
	if got := b.wait(0, now); got != 0 {
		t.Errorf("before any refusal creates wait %v", got)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		b = b.refused(7, false, now)
		if got := b.wait(7, now); got != want*time.Second {
			t.Errorf("after %d refusals creates wait %v, want %v", i+1, got, want*time.Second)
		}
	}
	for range 100 {
		b = b.refused(7, false, now)
	}
	if got := b.wait(7, now); got != time.Minute {
		t.Errorf("after very many refusals creates wait %v, want 1m", got)
	}
	if got := b.wait(7, now.Add(time.Minute)); got != 0 {
		t.Errorf("a minute later creates wait %v", got)
	}
	if got := b.wait(8, now); got != 0 {
		t.Errorf("for another spec creates wait %v", got)
	}
	if got := b.refused(8, false, now).wait(8, now); got != time.Second {
		t.Errorf("the first refusal of another spec makes creates wait %v, want 1s", got)
	}
	if got := b.refused(7, true, now).wait(7, now); got != time.Second {
		t.Errorf("after some progress creates wait %v, want 1s", got)
	}
}

func TestFailedWait(t *testing.T) {
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
		since  time.Time // of the template
		want   time.Duration
	}{
		{"none", nil, time.Time{}, 0},
		{"three are tolerated", repeat(3, 0), time.Time{}, 0},
		{"the fourth waits ten seconds", repeat(4, 0), time.Time{}, 10 * time.Second},
		{"counted from the newest", failed(0, 9*time.Second, 8*time.Second, 4*time.Second), time.Time{}, 10 * time.Second},
		{"part of it has passed", repeat(4, 4*time.Second), time.Time{}, 6 * time.Second},
		{"all of it has passed", repeat(4, 10*time.Second), time.Time{}, 0},
		{"the fifth twice as long", repeat(5, 0), time.Time{}, 20 * time.Second},
		{"never longer than five minutes", repeat(500, 0), time.Time{}, 5 * time.Minute},
		{"old ones do not count", append(repeat(9, 10*time.Minute), repeat(3, 0)...), time.Time{}, 0},
		{"those of an older template do not count", repeat(9, time.Minute), now.Add(-30 * time.Second), 0},
		{"those that were evicted do not count", evicted(repeat(9, 0)), time.Time{}, 0},
		{"created in the future, by another clock", repeat(4, -time.Hour), time.Time{}, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := failedWait(tt.failed, tt.since, now); got != tt.want {
				t.Errorf("wait %v, want %v", got, tt.want)
			}
		})
	}
}
