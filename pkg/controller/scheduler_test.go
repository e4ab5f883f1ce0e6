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

	"minikcm/internal/fakeapi"
)

// TestGroupsShareSlowSyncs: with two workers at most 32 syncs are detached. Keys hang until their group heals, the
// groups heal one after the other.
func TestGroupsShareSlowSyncs(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys map[string]int   // number of keys of each group, added in the order of the names
		want []map[string]int // least running syncs, and after each group that heals; the workers may run two more
	}{
		{"one group has half", map[string]int{"a": 100}, []map[string]int{{"a": 16}}},
		{"groups with few keys", map[string]int{"a": 3, "b": 4}, []map[string]int{{"a": 3, "b": 4}, {"b": 4}}},
		{"keys without a group have all, and the workers", map[string]int{"": 100}, []map[string]int{{"": 34}}},
		{"the next group has half of the rest, and then half", map[string]int{"a": 50, "b": 50}, []map[string]int{{"a": 16, "b": 7}, {"b": 16}}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			var lock sync.Mutex
			running, done := map[string]int{}, map[string]int{}
			heal := map[string]chan struct{}{}
			var keys []string
			names := slices.Sorted(maps.Keys(tt.keys))
			for _, group := range names {
				heal[group] = make(chan struct{})
				for i := range tt.keys[group] {
					keys = append(keys, fmt.Sprintf("%s/%d", group, i))
				}
			}
			l := newLoop(t, 2, 0, func(_ context.Context, key string) (Result, error) {
				lock.Lock()
				defer lock.Unlock()
				if hangs := heal[groupOfKey(key)]; hangs != nil {
					running[groupOfKey(key)]++
					lock.Unlock()
					<-hangs
					lock.Lock()
					running[groupOfKey(key)]--
				}
				done[key]++
				return Result{}, nil
			}).GroupBy(groupOfKey)
			end := term(l, keys...)
			time.Sleep(time.Minute)
			for i, group := range names {
				fine := fmt.Sprintf("fine/%d", i)
				l.Add(fine)
				synctest.Wait()
				lock.Lock()
				for group, want := range tt.want[i] {
					if got := running[group]; got < want || got > min(want+2, 34) {
						t.Errorf("%d syncs of group %q run after %d have healed, want %d", got, group, i, want)
					}
				}
				if _, full := tt.want[i][""]; done[fine] != 1 && !full {
					t.Error("a key of another group waits")
				}
				lock.Unlock()
				close(heal[group])
				time.Sleep(time.Second)
			}
			end()
			fakeapi.Want(t, "groups without slow syncs", len(l.scheduler.groups), 0)
			for _, key := range append(keys, "fine/0") {
				fakeapi.Want(t, "syncs of "+key, done[key], 1)
			}
		})
	}
}

// Keys that are withheld follow each other at the speed of their syncs, and do not delay keys of other groups.
func TestWithheldKeysFollowAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Int32
		var other time.Time
		l := newLoop(t, 2, 0, func(_ context.Context, key string) (Result, error) {
			if key == "a/slow" {
				time.Sleep(10 * time.Second)
				return Result{}, nil
			}
			if key == "other/1" {
				other = time.Now()
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
		time.Sleep(time.Second)
		added := time.Now()
		l.Add("other/1")
		time.Sleep(2 * time.Second)
		fakeapi.Want(t, "keys done after 3 s", done.Load(), 1000)
		fakeapi.Want(t, "wait of a key of another group", other.Sub(added), 0)
	})
}

func groupOfKey(key string) string { group, _, _ := strings.Cut(key, "/"); return group }

func TestHealthyReportsStuckSync(t *testing.T) {
	for _, tt := range []struct {
		name     string
		progress func(*httptrace.ClientTrace) // once a minute, for ten minutes
		healthy  int                          // minutes
	}{
		{"no request", func(*httptrace.ClientTrace) {}, 2},
		{"requests have responses", func(trace *httptrace.ClientTrace) { trace.GotFirstResponseByte() }, 12},
		{"requests are sent again and again", func(trace *httptrace.ClientTrace) { trace.GetConn("") }, 12},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			l := newLoop(t, 2, 0, func(ctx context.Context, key string) (Result, error) {
				for minute := range 20 {
					if key == "fine" {
						break
					}
					time.Sleep(time.Minute)
					if minute < 10 {
						tt.progress(httptrace.ContextClientTrace(ctx))
					}
				}
				return Result{}, nil
			})
			end := term(l, "hangs", "fine")
			for range tt.healthy {
				time.Sleep(time.Minute)
				fakeapi.Want(t, "health within two minutes after progress", l.Healthy(), nil)
			}
			time.Sleep(time.Second)
			fakeapi.Want(t, "healthy more than two minutes after the last request", l.Healthy() == nil, false)
			end()
			fakeapi.Want(t, "health outside a term", l.Healthy(), nil)
		})
	}
}

// TestRequestsCountAsProgress over both versions of HTTP, through an ordinary client.
func TestRequestsCountAsProgress(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) {
			var served time.Time
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				fakeapi.Want(t, "version of HTTP", r.ProtoMajor, version)
				served = time.Now()
			}))
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			defer server.Close()
			l := newLoop(t, 1, 0, nil)
			term, end := context.WithCancel(t.Context())
			var requests int32
			l.reconcile = func(ctx context.Context, _ string) (Result, error) {
				defer end()
				r := slices.Collect(maps.Keys(l.scheduler.running))[0]
				for range 3 {
					req := fakeapi.Must(http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil))
					resp := fakeapi.Must(server.Client().Do(req))
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if signed := *r.lastProgress.Load(); signed.Before(served) {
						t.Errorf("last sign of life at %v, before the response at %v", signed, served)
					}
				}
				requests = r.requests.Load()
				return Result{}, nil
			}
			l.Run(term, func() []string { return []string{"k"} })
			fakeapi.Want(t, "counted requests", requests, 3)
		})
	}
}

func TestQueueDepthIsZeroAfterTheTerm(t *testing.T) {
	for _, n := range []int{1, 40} { // at most 17 keys are in progress at once
		fakeapi.Bubble(t, fmt.Sprint(n), func(t *testing.T) {
			l := NewLoop(LoopConfig{Controller: "c", Queue: "gauges", Workers: 1, Clock: clock.RealClock{}}, QueueMetrics{prometheus.NewRegistry()},
				func(context.Context, string) (Result, error) { time.Sleep(125 * time.Second); return Result{}, nil })
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint(i)
			}
			end := term(l, keys...)
			time.Sleep(124 * time.Second)
			l.Add(keys[0]) // its slow sync is still running
			fakeapi.Want(t, "depth during the term", gauge(t, "workqueue_depth", "gauges"), float64(max(1, n-16)))
			end()
			fakeapi.Want(t, "depth after the term", gauge(t, "workqueue_depth", "gauges"), 0)
		})
	}
}

func gauge(t *testing.T, name, queue string) float64 {
	t.Helper()
	families := fakeapi.Must(legacyregistry.DefaultGatherer.Gather())
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
