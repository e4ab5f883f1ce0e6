package controller

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // registers queue metrics
	"k8s.io/utils/clock"
)

// TestGroupsShareSlowSyncs: with two workers at most 32 syncs are slow.
func TestGroupsShareSlowSyncs(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys map[string]int // number of keys of each group that hang, added in the order of the names
		want map[string]int // least running syncs after a minute; the workers may run two more
	}{
		{"one group has half", map[string]int{"a": 100}, map[string]int{"a": 16}},
		{"groups with few keys", map[string]int{"a": 3, "b": 4}, map[string]int{"a": 3, "b": 4}},
		{"keys without a group have all, and the workers", map[string]int{"": 100}, map[string]int{"": 34}},
		{"the next group has half of the rest", map[string]int{"a": 50, "b": 50}, map[string]int{"a": 16, "b": 7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lock sync.Mutex
				running := map[string]int{}
				fine := 0
				heal := make(chan struct{})
				l := newLoop(t, 2, 0, func(_ context.Context, key string) (Result, error) {
					lock.Lock()
					defer lock.Unlock()
					if group := groupOfKey(key); group != "fine" {
						running[group]++
						lock.Unlock()
						<-heal
						lock.Lock()
						running[group]--
					} else {
						fine++
					}
					return Result{}, nil
				}).GroupBy(groupOfKey)
				var keys []string
				for _, group := range slices.Sorted(maps.Keys(tt.keys)) {
					for i := range tt.keys[group] {
						keys = append(keys, fmt.Sprintf("%s/%d", group, i))
					}
				}
				end := term(l, keys...)
				time.Sleep(time.Minute)
				l.Add("fine/1")
				synctest.Wait()
				lock.Lock()
				for group, want := range tt.want {
					if got := running[group]; got < want || got > min(want+2, 34) {
						t.Errorf("%d syncs of group %q run, want %d", got, group, want)
					}
				}
				if _, full := tt.want[""]; fine != 1 && !full {
					t.Error("a key of another group waits")
				}
				lock.Unlock()
				close(heal)
				time.Sleep(time.Minute)
				end()
				if fine != 1 {
					t.Error("a key of another group was not reconciled")
				}
			})
		})
	}
}

// TestGroupTakesWorkersAgainAfterItsSlowSyncs: a group without an overdue sync runs on its workers only.
func TestGroupTakesWorkersAgainAfterItsSlowSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		l := newLoop(t, 2, 0, func(_ context.Context, key string) (Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if key == "a/slow" {
				time.Sleep(1500 * time.Millisecond)
			}
			time.Sleep(900 * time.Millisecond)
			return Result{}, nil
		}).GroupBy(groupOfKey)
		end := term(l, "a/slow")
		time.Sleep(3500 * time.Millisecond)
		most.Store(0)
		for i := range 10 {
			l.Add(fmt.Sprintf("a/%d", i))
		}
		time.Sleep(10 * time.Second)
		if got := most.Load(); got != 2 {
			t.Errorf("%d syncs ran at once, want one per worker", got)
		}
		end()
	})
}

// Keys that are withheld follow each other at the speed of their syncs.
func TestWithheldKeysFollowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Int32
		l := newLoop(t, 2, 0, func(_ context.Context, key string) (Result, error) {
			if key == "a/slow" {
				time.Sleep(10 * time.Second)
				return Result{}, nil
			}
			time.Sleep(30 * time.Millisecond)
			done.Add(1)
			return Result{}, nil
		}).GroupBy(groupOfKey)
		end := term(l, "a/slow")
		defer end()
		time.Sleep(2 * time.Second)
		for i := range 1000 {
			l.Add(fmt.Sprintf("a/%d", i))
		}
		time.Sleep(3 * time.Second)
		if got := done.Load(); got != 1000 {
			t.Errorf("%d keys are done after 3 s, want 1,000", got)
		}
	})
}

func groupOfKey(key string) string { group, _, _ := strings.Cut(key, "/"); return group }

func TestSlowSyncsDoNotHoldUpOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{start: time.Now()}
		heal := make(chan struct{})
		l := newLoop(t, 2, 0, func(_ context.Context, key string) (Result, error) {
			if strings.HasPrefix(key, "hangs") {
				<-heal
			}
			seen.add(key)
			return Result{}, nil
		})
		end := term(l, "hangs-1", "hangs-2")
		synctest.Wait()
		l.Add("fine")
		l.Add("fine too")
		time.Sleep(time.Minute)
		if got, want := seen.sorted(), []string{"fine too@1s", "fine@1s"}; !slices.Equal(got, want) {
			t.Errorf("reconciled %v, want %v", got, want)
		}
		close(heal)
		end()
	})
}

// TestAGroupOfSlowKeysDoesNotHoldUpOthers: a thousand pods of one namespace whose webhook hangs.
func TestAGroupOfSlowKeysDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock sync.Mutex
		done, running, most := map[string]int{}, 0, 0
		healed := false
		l := newLoop(t, 4, 0, func(_ context.Context, key string) (Result, error) {
			lock.Lock()
			running++
			most = max(most, running)
			hangs := strings.HasPrefix(key, "slow/") && !healed
			lock.Unlock()
			if hangs {
				time.Sleep(10 * time.Second)
			}
			lock.Lock()
			running--
			done[key]++
			lock.Unlock()
			return Result{}, nil
		}).GroupBy(groupOfKey)
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprintf("slow/%d", i))
		}
		end := term(l, keys...)
		time.Sleep(30 * time.Second)
		for i := range 20 {
			key, asked := fmt.Sprintf("other/%d", i), time.Now()
			l.Add(key)
			for {
				lock.Lock()
				finished := done[key] > 0
				lock.Unlock()
				if finished {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if waited := time.Since(asked); waited > 50*time.Millisecond {
				t.Errorf("a key of another group waited %v", waited)
			}
			time.Sleep(3 * time.Second)
		}
		lock.Lock()
		if most > 4*slowPerWorker/2+4+1 {
			t.Errorf("%d syncs ran at once, want half of the slow ones, and the workers", most)
		}
		healed = true
		lock.Unlock()
		time.Sleep(time.Minute)
		l.scheduler.lock.Lock()
		groups := len(l.scheduler.groups)
		l.scheduler.lock.Unlock()
		if groups != 0 {
			t.Errorf("%d groups are kept in mind when nothing is slow any more", groups)
		}
		end()
		for _, key := range keys {
			if done[key] != 1 {
				t.Errorf("%s was reconciled %d times, want once", key, done[key])
			}
		}
	})
}

func TestASyncWhoseRequestsAreAnsweredIsSlowAndNotStuck(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request func(*httptrace.ClientTrace)
	}{
		{"requests are answered", func(trace *httptrace.ClientTrace) { trace.GotFirstResponseByte() }},
		{"requests are sent again and again", func(trace *httptrace.ClientTrace) { trace.GetConn("") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				l := newLoop(t, 1, 0, func(ctx context.Context, _ string) (Result, error) {
					for range 10 {
						time.Sleep(time.Minute)
						tt.request(httptrace.ContextClientTrace(ctx))
					}
					<-release
					return Result{}, nil
				})
				end := term(l, "k")
				for range 12 {
					time.Sleep(time.Minute)
					if err := l.Healthy(); err != nil {
						t.Errorf("while requests are answered, and for two minutes after: %v", err)
					}
				}
				time.Sleep(time.Second)
				if l.Healthy() == nil {
					t.Error("healthy although no request was sent or answered for more than two minutes")
				}
				close(release)
				end()
			})
		})
	}
}

// TestRequestsAreSignsOfLife over both versions of HTTP, through an ordinary client.
func TestRequestsAreSignsOfLife(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			clk := &steppedClock{now: time.Unix(1e9, 0)}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != version {
					t.Errorf("the request came over %s", r.Proto)
				}
				clk.step(time.Minute)
			}))
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			defer server.Close()
			l := NewLoop[string](LoopConfig{Controller: "c", Queue: "signs", Workers: 1, Clock: clk}, prometheus.NewRegistry(), nil)
			r := l.scheduler.startSync("k", "", clk.Now())
			for range 3 {
				clk.step(time.Minute)
				req, err := http.NewRequestWithContext(l.withTrace(t.Context(), r), http.MethodGet, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if silent := clk.Now().Sub(*r.signed.Load()); silent != 0 {
					t.Errorf("last sign of life %v before the answer", silent)
				}
			}
		})
	}
}

type steppedClock struct {
	clock.RealClock
	lock sync.Mutex
	now  time.Time
}

func (c *steppedClock) Now() time.Time {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.now
}

func (c *steppedClock) step(d time.Duration) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.now = c.now.Add(d)
}

func TestQueueDepthIsZeroAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoop(LoopConfig{Controller: "c", Queue: "gauges", Workers: 1, Clock: clock.RealClock{}}, QueueMetrics{prometheus.NewRegistry()},
			func(context.Context, string) (Result, error) { time.Sleep(125 * time.Second); return Result{}, nil })
		keys := make([]string, 40) // more than are in progress at once
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		end := term(l, keys...)
		time.Sleep(124 * time.Second)
		if got := gauge(t, "workqueue_depth", "gauges"); got == 0 {
			t.Error("depth is 0 during the term")
		}
		end()
		if got := gauge(t, "workqueue_depth", "gauges"); got != 0 {
			t.Errorf("depth is %v after the term, want 0", got)
		}
	})
}

func gauge(t *testing.T, name, queue string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == queue {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s of queue %s", name, queue)
	return 0
}
