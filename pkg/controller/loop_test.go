package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
)

// calls records the keys of a loop with one worker, with their times.
type calls struct {
	start time.Time
	log   []string
}

func (c *calls) add(key string) {
	c.log = append(c.log, fmt.Sprintf("%s@%v", key, time.Since(c.start)))
}

func (c *calls) sorted() []string { return slices.Sorted(slices.Values(c.log)) }

func newLoop(t *testing.T, workers int, drain time.Duration, r Reconcile[string]) *Loop[string] {
	t.Helper()
	cfg := LoopConfig{Controller: "test-controller", Queue: "test", Workers: workers, Drain: drain, Clock: clock.RealClock{}}
	return NewLoop(cfg, prometheus.NewRegistry(), r)
}

// term runs the loop for one term and returns a function that ends the term and waits.
func term(l *Loop[string], keys ...string) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx, func() []string { return keys })
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestKeysOutsideATermAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{start: time.Now()}
		l := newLoop(t, 1, 0, func(_ context.Context, key string) (Result, error) { seen.add(key); return Result{}, nil })
		l.Add("before")
		l.AddAfter("before, delayed", time.Second)
		end := term(l, "owned")
		synctest.Wait()
		end()
		l.Add("between")
		end = term(l, "owned again")
		time.Sleep(time.Minute)
		end()
		fakeapi.WantEqual(t, "syncs", seen.sorted(), []string{"owned again@0s", "owned@0s"})
	})
}

func TestStartLosesNoKeyAndIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{start: time.Now()}
		l := newLoop(t, 1, 0, func(_ context.Context, key string) (Result, error) {
			time.Sleep(time.Minute)
			seen.add(key)
			return Result{}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		l.Start(ctx, &loops, nil)
		l.Add("added at once")
		time.Sleep(time.Second)
		cancel()
		loops.Wait()
		fakeapi.WantEqual(t, "syncs", seen.sorted(), []string{"added at once@1m0s"})
	})
}

func TestResultsDecideWhenAKeyReturns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		results []func() (Result, error) // of each sync; the last repeats
		want    []string                 // within the first second
		metrics [4]uint64                // syncs that are done, requeued, failed and cancelled
	}{
		{"done", []func() (Result, error){done}, []string{"k@0s"}, [4]uint64{1, 0, 0, 0}},
		{"RequeueAfter", []func() (Result, error){after(300 * time.Millisecond), done}, []string{"k@0s", "k@300ms"}, [4]uint64{1, 1, 0, 0}},
		{"errors back off from 5 ms, doubling", []func() (Result, error){fail, fail, fail, done},
			[]string{"k@0s", "k@15ms", "k@35ms", "k@5ms"}, [4]uint64{1, 0, 3, 0}},
		{"success forgets earlier errors", []func() (Result, error){fail, after(100 * time.Millisecond), fail, done},
			[]string{"k@0s", "k@105ms", "k@110ms", "k@5ms"}, [4]uint64{1, 1, 2, 0}},
		{"RequeueAfter beside an error bounds the back-off", []func() (Result, error){fail, fail, fail, failAfter(3 * time.Millisecond), done},
			[]string{"k@0s", "k@15ms", "k@35ms", "k@38ms", "k@5ms"}, [4]uint64{1, 0, 4, 0}},
		{"panic", []func() (Result, error){explode, done}, []string{"k@0s", "k@5ms"}, [4]uint64{1, 0, 1, 0}},
		{"cancelled request", []func() (Result, error){cut, done}, []string{"k@0s", "k@5ms"}, [4]uint64{1, 0, 0, 1}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			seen := &calls{start: time.Now()}
			n := 0
			l := newLoop(t, 1, 0, func(_ context.Context, key string) (Result, error) {
				seen.add(key)
				result := tt.results[min(n, len(tt.results)-1)]
				n++
				return result()
			})
			end := term(l, "k")
			time.Sleep(time.Second)
			end()
			fakeapi.WantEqual(t, "syncs", seen.sorted(), tt.want)
			for i, label := range []string{"done", "requeue", "error", "canceled"} {
				seconds := fakeapi.Histogram(t, l.seconds.WithLabelValues(label))
				fakeapi.Want(t, "controller_sync_duration_seconds of "+label, seconds.GetSampleCount(), tt.metrics[i])
			}
			fakeapi.Want(t, "panic is counted", testutil.ToFloat64(l.panics) == 1, tt.name == "panic")
		})
	}
}

func done() (Result, error)    { return Result{}, nil }
func fail() (Result, error)    { return Result{}, errors.New("no") }
func explode() (Result, error) { panic("boom") }
func cut() (Result, error)     { return Result{}, fmt.Errorf("create: %w", context.Canceled) }
func failAfter(d time.Duration) func() (Result, error) {
	return func() (Result, error) { return Result{RequeueAfter: d}, errors.New("no") }
}
func after(d time.Duration) func() (Result, error) {
	return func() (Result, error) { return Result{RequeueAfter: d}, nil }
}

func TestAKeyNeverRunsTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, syncs atomic.Int32
		l := newLoop(t, 4, 0, func(context.Context, string) (Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			syncs.Add(1)
			return Result{}, nil
		})
		end := term(l, "k")
		for range 5 {
			time.Sleep(100 * time.Millisecond)
			l.Add("k")
		}
		time.Sleep(time.Minute)
		end()
		if most.Load() != 1 || syncs.Load() != 2 {
			t.Errorf("most at once = %d, syncs = %d, want 1 and 2", most.Load(), syncs.Load())
		}
	})
}

func TestRunningSyncsFinishWithinTheDrainTime(t *testing.T) {
	for _, tt := range []struct {
		name        string
		sync, drain time.Duration
		wantErr     error
		wantEnd     time.Duration // after the context of the term was cancelled
	}{
		{"shorter than the drain time", 3 * time.Second, 5 * time.Second, nil, 2500 * time.Millisecond},
		{"longer than the drain time", 30 * time.Second, 5 * time.Second, context.Canceled, 5 * time.Second},
		{"no bound", 30 * time.Second, 0, nil, 29500 * time.Millisecond},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			var got error
			var syncs int
			l := newLoop(t, 1, tt.drain, func(ctx context.Context, _ string) (Result, error) {
				syncs++
				select {
				case <-ctx.Done():
					got = ctx.Err()
				case <-time.After(tt.sync):
				}
				return Result{}, got
			})
			end := term(l, "running", "waiting")
			time.Sleep(500 * time.Millisecond) // less than makes a sync slow
			start := time.Now()
			end()
			if took := time.Since(start); got != tt.wantErr || took != tt.wantEnd || syncs != 1 {
				t.Errorf("err = %v after %v, %d syncs; want %v after %v, 1 sync", got, took, syncs, tt.wantErr, tt.wantEnd)
			}
		})
	}
}

func TestDrainingEndsALongSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		l := newLoop(t, 1, time.Minute, func(ctx context.Context, _ string) (Result, error) {
			for range 100 {
				if Draining(ctx) {
					return Result{}, ErrDraining
				}
				requests++
				time.Sleep(time.Second)
			}
			return Result{}, nil
		})
		end := term(l, "k")
		time.Sleep(2500 * time.Millisecond)
		end()
		fakeapi.Want(t, "requests", requests, 3) // the one in flight is finished and no other begun
		fakeapi.Want(t, "syncs that were cut short", fakeapi.Histogram(t, l.seconds.WithLabelValues("canceled")).GetSampleCount(), 1)
		fakeapi.Want(t, "draining context of no sync", Draining(t.Context()), false)
	})
}
