package controller

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // registers queue metrics
	"k8s.io/utils/clock"
)

func TestWhichSyncsMayRun(t *testing.T) {
	type step struct {
		at    time.Duration
		begin string // "group/key", or empty
		end   string // likewise
		want  string // of begin: "runs" or "aside"; of end: keys no longer held aside
	}
	// Two workers, so at most 32 slow syncs: a group alone has 16.
	many := func(group string, from, to int, at time.Duration, want string) (steps []step) {
		for i := from; i < to; i++ {
			steps = append(steps, step{at: at, begin: fmt.Sprintf("%s/%d", group, i), want: want})
		}
		return steps
	}
	for _, tt := range []struct {
		name  string
		steps []step
		free  bool
		again time.Duration // time until the next vacancy
	}{
		{name: "nobody runs", free: true},
		{name: "a worker is free", steps: many("a", 0, 1, 0, "runs"), free: true},
		{name: "both are taken", steps: many("a", 0, 2, 0, "runs"), again: time.Second},
		{name: "a slow sync leaves its worker to another", steps: append(many("a", 0, 2, 0, "runs"),
			many("b", 0, 1, time.Second, "runs")...), free: true},
		{name: "a group alone has half of the slow ones", steps: append(append(many("a", 0, 16, 0, "runs"),
			many("a", 16, 20, time.Second, "aside")...), many("b", 0, 1, time.Second, "runs")...), free: true},
		{name: "two groups have a third each", steps: slices.Concat(many("a", 0, 10, 0, "runs"), many("b", 0, 11, 0, "runs"),
			many("a", 10, 11, time.Second, "runs"), many("b", 11, 12, time.Second, "aside"), many("c", 0, 1, time.Second, "runs")), free: true},
		{name: "the next of a group with an old sync occupies no worker", steps: append(many("a", 0, 2, 0, "runs"), many("a", 2, 6, time.Second, "runs")...), free: true},
		{name: "a group whose old syncs have ended occupies workers again", steps: slices.Concat(many("a", 0, 1, 0, "runs"), many("a", 1, 2, time.Second, "runs"),
			[]step{{at: time.Second, end: "a/0", want: ""}}, many("a", 2, 4, time.Second, "runs")), again: time.Second},
		{name: "keys of no group share with nobody", steps: append(many("", 0, 31, 0, "runs"), many("", 31, 32, time.Second, "runs")...), free: true},
		{name: "when too many are slow only the end of one helps", steps: many("", 0, 32, -time.Second, "runs")},
		{name: "the end of a sync calls back two of its group, in their order", steps: slices.Concat(many("a", 0, 16, 0, "runs"),
			many("a", 16, 20, time.Second, "aside"), many("a", 16, 17, time.Second, "aside"), []step{
				{at: time.Second, end: "a/3", want: "16 17"},
				{at: time.Second, begin: "a/16", want: "runs"},
				{at: time.Second, end: "a/4", want: "18 19"},
				{at: time.Second, end: "a/5", want: ""},
			}), free: true},
		{name: "a key that has left its group calls back others of groups", steps: slices.Concat(many("a", 0, 16, 0, "runs"), many("a", 16, 20, time.Second, "aside"), []step{
			{at: time.Second, end: "a/3", want: "16 17"},
			{at: time.Second, begin: "/16", want: "runs"},
			{at: time.Second, end: "/16", want: "18 19"},
		}), free: true},
		{name: "the end of another group's calls back nobody", steps: slices.Concat(many("b", 0, 1, 0, "runs"), many("a", 0, 16, 0, "runs"),
			many("a", 16, 20, time.Second, "aside"), []step{{at: time.Second, end: "b/0", want: ""}}), free: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			epoch := time.Unix(1e9, 0)
			c := newScheduler[string](2, time.Second)
			runs := map[string]*run{}
			now := epoch
			for _, s := range tt.steps {
				now = epoch.Add(max(s.at, 0))
				if s.begin != "" {
					group, key, _ := strings.Cut(s.begin, "/")
					got := "runs"
					if runs[s.begin] = c.startSync(key, group, epoch.Add(s.at)); runs[s.begin] == nil {
						got = "aside"
					}
					if got != s.want {
						t.Errorf("%s at %v: %s, want %s", s.begin, s.at, got, s.want)
					}
					continue
				}
				if got := strings.Join(c.endSync(runs[s.end], now), " "); got != s.want {
					t.Errorf("the end of %s at %v calls back %q, want %q", s.end, s.at, got, s.want)
				}
			}
			if free, again := c.nextVacancy(now); free != tt.free || again != tt.again {
				t.Errorf("vacancy %v, ask again in %v; want %v and %v", free, again, tt.free, tt.again)
			}
		})
	}
}

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
		}).GroupBy(func(key string) string { group, _, _ := strings.Cut(key, "/"); return group })
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
