package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestGet(t *testing.T) {
	type ask struct {
		after  time.Duration // since the first call
		since  time.Duration // the read must not have started earlier
		forget bool
		want   int // number of the read
	}
	for _, tt := range []struct {
		name string
		asks []ask
	}{
		{"a fresh answer is shared", []ask{{want: 1}, {after: 999 * time.Millisecond, want: 1}}},
		{"an old answer is not", []ask{{want: 1}, {after: time.Second, want: 2}}},
		{"nor one asked for too early", []ask{{want: 1}, {after: 2, since: 1, want: 2}}},
		{"one asked for in the same instant is", []ask{{want: 1}, {after: 2, since: 0, want: 1}}},
		{"nor a forgotten one", []ask{{want: 1}, {forget: true, want: 2}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				r := NewReads(clock.RealClock{}, func(context.Context, string) (int, error) { reads++; return reads, nil })
				start := time.Now()
				for i, a := range tt.asks {
					time.Sleep(time.Until(start.Add(a.after)))
					if a.forget {
						r.Forget("n")
					}
					got, err := r.Get(t.Context(), "n", start.Add(a.since))
					if err != nil || got != a.want {
						t.Errorf("ask %d answered by read %d, %v; want read %d", i, got, err, a.want)
					}
				}
			})
		})
	}
}

func TestOneReadForAll(t *testing.T) {
	for _, takes := range []time.Duration{time.Second / 2, 2 * time.Second} {
		t.Run(fmt.Sprint("it takes ", takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				r := NewReads(clock.RealClock{}, func(context.Context, string) (int, error) {
					reads++
					time.Sleep(takes)
					return reads, nil
				})
				start := time.Now()
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() {
						if got, err := r.Get(t.Context(), "n", start); got != 1 || err != nil {
							t.Errorf("Get = %d, %v", got, err)
						}
					})
				}
				all.Wait()
				if reads != 1 {
					t.Errorf("%d reads for 50 who asked at once, want 1", reads)
				}
			})
		})
	}
}

// The age of a result counts from the request: a caller that arrives later needs a newer read.
func TestWhoComesDuringASlowReadDoesNotShareIt(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  int // number of the read
	}{
		{999 * time.Millisecond, 1}, {time.Second, 2}, {5 * time.Second, 2},
	} {
		t.Run(fmt.Sprint("asks after ", tt.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				r := NewReads(clock.RealClock{}, func(context.Context, string) (int, error) {
					reads++
					number := reads
					time.Sleep(20 * time.Second)
					return number, nil
				})
				var all sync.WaitGroup
				all.Go(func() { _, _ = r.Get(t.Context(), "n", time.Time{}) })
				time.Sleep(tt.after)
				for range 50 {
					all.Go(func() {
						if got, err := r.Get(t.Context(), "n", time.Time{}); got != tt.want || err != nil {
							t.Errorf("answered by read %d, %v; want read %d", got, err, tt.want)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

func TestErrorsAreNotShared(t *testing.T) {
	broken := errors.New("broken")
	reads := 0
	r := NewReads(clock.RealClock{}, func(context.Context, string) (int, error) {
		reads++
		if reads == 1 {
			return 0, broken
		}
		return reads, nil
	})
	if _, err := r.Get(t.Context(), "n", time.Time{}); !errors.Is(err, broken) {
		t.Errorf("first Get: %v, want the read's error", err)
	}
	if got, err := r.Get(t.Context(), "n", time.Time{}); got != 2 || err != nil {
		t.Errorf("second Get = %d, %v; want the second read's answer", got, err)
	}
}
