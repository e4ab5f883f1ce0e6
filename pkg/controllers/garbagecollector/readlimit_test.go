package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
)

func TestReadLimiterBacksOff(t *testing.T) {
	s, typ := time.Second, configMaps.WithVersion("v1")
	refused := apierrors.NewForbidden(typ.GroupResource(), "o", errors.New("no"))
	broken, converts := errors.New("broken"), errors.New("conversion webhook for example.com/v1, Kind=Widget failed: EOF")
	type read struct {
		takes time.Duration
		err   error
		pause time.Duration // after the read
	}
	for _, tt := range []struct {
		name  string
		all   chan struct{} // of lists
		reads []read
	}{
		{"slow response", nil, []read{{10 * s, nil, 0}}},
		{"failing conversion webhook", nil, []read{{0, converts, s}, {0, converts, 2 * s}, {0, converts, 4 * s}}},
		{"timeouts", nil, []read{{10 * s, context.DeadlineExceeded, s}, {10 * s, context.DeadlineExceeded, 2 * s}, {10 * s, context.DeadlineExceeded, 4 * s}}},
		{"403 after long", nil, []read{{10 * s, refused, 0}}},
		{"403 to a list after long", make(chan struct{}, 1), []read{{10 * s, refused, s}}},
		{"errors after long", nil, []read{{10 * s, broken, s}, {10 * s, broken, 2 * s}}},
		{"response after timeouts", nil, []read{{10 * s, context.DeadlineExceeded, s}, {s, nil, 0}, {10 * s, context.DeadlineExceeded, s}}},
		{"error at once after timeouts", nil, []read{{10 * s, context.DeadlineExceeded, s}, {s, broken, 0}}},
		{"cancelled", nil, []read{{10 * s, context.DeadlineExceeded, s}, {9 * s, context.Canceled, 0}, {10 * s, context.DeadlineExceeded, 2 * s}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(began)
			l := newReadLimiter(clk, 2, tt.all)
			for n, r := range tt.reads {
				err := l.do(t.Context(), typ, func(context.Context) error { clk.Step(r.takes); return r.err })
				fakeapi.WantError(t, fmt.Sprint("read ", n), err, r.err)
				fakeapi.Want(t, fmt.Sprint("pause after read ", n), l.backoffOf(typ, 0), r.pause)
				if r.pause > 0 && !errors.Is(l.do(t.Context(), typ, func(context.Context) error { return nil }), errPaused) {
					t.Errorf("a read was sent in the pause after read %d", n)
				}
				clk.Step(r.pause)
			}
		})
	}
}

// Reads of one type hang, as behind a conversion webhook without responses. Objects with other owners in the same
// namespaces are deleted, and the term ends at once.
func TestHangingReadsDelayNoOtherOwner(t *testing.T) {
	for _, ofOwners := range []bool{true, false} {
		inClusterNamed(t, fmt.Sprintf("owners hang %v", ofOwners), func(t *testing.T, c *cluster) {
			c.start()
			hanging := things
			if ofOwners {
				hanging = widgetType
				c.AddType("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
				c.BlockRequests(c.t, "example.com/v1", "widgets")
				c.service("v1.example.com")
				c.is(widgetType.GroupResource, listing)
			} else {
				c.slow("get things", time.Hour)
			}
			for n := range 400 {
				namespace, name := fmt.Sprint("n", n%5), fmt.Sprint("d", n)
				if ofOwners {
					c.put(configMaps, newThing(namespace, name, uid(2000+n)).owned(ref("example.com/v1", "Widget", fmt.Sprint("w", n), uid(1000+n))))
				} else {
					c.put(things, newThing(namespace, name, uid(2000+n)).owned(ref("v1", "ConfigMap", fmt.Sprint("w", n), uid(1000+n))))
				}
			}
			for minute := range 4 {
				for range 6 {
					time.Sleep(10 * time.Second)
					fakeapi.NoError(t, c.Healthy())
				}
				owner := newThing("n1", fmt.Sprint("owner", minute), uid(3000+minute))
				c.put(configMaps, owner)
				c.put(configMaps, newThing("n1", "of-owner", uid(4000+minute)).owned(ref("v1", "ConfigMap", owner.Name, owner.UID)))
				c.DeleteObject("v1", "configmaps", "n1", owner.Name, metav1.DeletePropagationBackground)
				c.wait(2*time.Second, "deleted", func() bool { return c.GetObject("v1", "configmaps", "n1", "of-owner") == nil })
			}
			if n := c.Count("get " + hanging.Resource); n > 30 { // 16 at once and 7 probes
				t.Errorf("%d reads were sent to an API that does not respond", n)
			}
			if got := c.blocked()["unable"]; ofOwners && got != 400 {
				t.Errorf("blocked are %v, want 400", c.blocked())
			}
			begin := time.Now()
			c.end()
			if took := time.Since(begin); took > time.Second {
				t.Errorf("the term took %v to end", took)
			}
		})
	}
}

// Reads that wait for a slot are not sent after the end of the term.
func TestNoReadsAfterTheTerm(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start()
		c.slow("get", time.Hour)
		c.slow("list", time.Hour)
		var refs []metav1.OwnerReference
		for n := range 40 {
			name := fmt.Sprint("o", n)
			c.put(configMaps, newThing("a", name, uid(5000+n)))
			c.remove(configMaps, name, metav1.DeletePropagationOrphan)
			refs = append(refs, ref("v1", "ConfigMap", fmt.Sprint("w", n), uid(1000+n)))
			c.put(configMaps, newThing("a", fmt.Sprint("d", n), uid(2000+n)).owned(refs...))
		}
		time.Sleep(time.Second)
		before, begin := c.Count("get"), time.Now()
		c.end()
		if after := c.Count("get"); before == 0 || after != before || time.Since(begin) > 0 {
			t.Errorf("%d reads in the term, %d after the term, which took %v to end", before, after-before, time.Since(begin))
		}
	})
}

// Orphans of 24 owners in as many namespaces are listed, 60 types for each owner. One type hangs.
func TestListsInFlightAreBounded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		for n := range 60 {
			c.AddType("example.com/v1", metav1.APIResource{Name: fmt.Sprint("t", n), Kind: fmt.Sprint("T", n), Namespaced: true})
		}
		c.start()
		var lock sync.Mutex
		inFlight, most := map[string]int{}, map[string]int{}
		count := func(what string, d int) {
			lock.Lock()
			defer lock.Unlock()
			inFlight[what] += d
			most[what] = max(most[what], inFlight[what])
		}
		var healed atomic.Bool
		c.on("list", func(ctx context.Context, r fakeapi.Request, _ int) error {
			for _, what := range []string{"all", r.What} {
				count(what, 1)
				defer count(what, -1)
			}
			if r.What == "list t0 " && !healed.Load() {
				return silentFor(ctx, time.Hour)
			}
			return silentFor(ctx, time.Second)
		})
		for n := range 24 {
			c.Put("v1", "configmaps", newThing(fmt.Sprint("n", n), "o", uid(100+n)).ObjectMeta)
			c.DeleteObject("v1", "configmaps", fmt.Sprint("n", n), "o", metav1.DeletePropagationOrphan)
		}
		time.Sleep(time.Minute)
		before := c.Count("list t0")
		for minute := range 10 {
			owner := newThing("a", fmt.Sprint("owner", minute), uid(3000+minute))
			c.put(configMaps, owner)
			c.put(configMaps, newThing("a", "d", uid(4000+minute)).owned(ref("v1", "ConfigMap", owner.Name, owner.UID)))
			c.remove(configMaps, owner.Name, metav1.DeletePropagationBackground)
			c.gone(configMaps, "d", time.Second)
			time.Sleep(time.Minute)
			fakeapi.NoError(t, c.Healthy())
		}
		lock.Lock()
		// The slot of a list that timed out is free before the fake API server has noticed the end of the request.
		if most["all"] > listsInAll+1 || most["all"] < listsInAll/2 || most["list t0 "] > listsOfType+1 || most["list t1 "] > listsOfType+1 {
			t.Errorf("%d lists at once, %d of a type that hangs and %d of another", most["all"], most["list t0 "], most["list t1 "])
		}
		lock.Unlock()
		if n := c.Count("list t0") - before; n > 40 {
			t.Errorf("%d lists of a type that hangs in ten minutes", n)
		}
		healed.Store(true)
		c.wait(10*time.Minute, "all gone", func() bool { return len(c.ListObjects("v1", "configmaps")) == 0 })
	})
}

// Thousands of failing requests must not become a flood, also while discovery adds keys. A few are retried soon.
func TestFailuresShareARate(t *testing.T) {
	dependent := func(c *cluster, n int, more ...metav1.OwnerReference) {
		absent := ref("v1", "ConfigMap", fmt.Sprint("w", n), uid(5000+n))
		c.put(configMaps, newThing("a", fmt.Sprint("d", n), uid(10+n)).owned(append(more, absent)...))
	}
	owner := func(c *cluster, n int, policy metav1.DeletionPropagation) {
		c.put(configMaps, newThing("a", fmt.Sprint("w", n), uid(10+n)))
		c.remove(configMaps, fmt.Sprint("w", n), policy)
	}
	for fails, put := range map[string]func(*cluster, int){
		"get configmaps w":   func(c *cluster, n int) { dependent(c, n) },
		"delete":             func(c *cluster, n int) { dependent(c, n) },
		"patch configmaps d": func(c *cluster, n int) { dependent(c, n, ref("v1", "ConfigMap", "o", uid(1))) },
		"patch configmaps w": func(c *cluster, n int) { owner(c, n, inForeground) },
		"list replicasets":   func(c *cluster, n int) { owner(c, n, orphans) },
		"list things": func(c *cluster, n int) { // the discovery of the type fails, too
			c.BreakDiscovery("far.example.com/v1", http.StatusServiceUnavailable*min(n, 1))
			owner(c, n, orphans)
		},
	} {
		inClusterNamed(t, fails, func(t *testing.T, c *cluster) {
			c.owner()
			c.start()
			c.fail(fails, errPolicy)
			put(c, 0)
			time.Sleep(minRecheck + time.Second)
			fakeapi.Want(t, "the first request was repeated", c.Count(fails) > 1, true)
			for n := range 1500 {
				put(c, 1+n)
			}
			time.Sleep(25 * time.Second)
			for n := range 6 {
				c.BreakDiscovery("far.example.com/v1", http.StatusServiceUnavailable*(1-n%2)) // every 20 s
				before := c.Count("")
				c.service(fmt.Sprint("v1.s", n))
				time.Sleep(10 * time.Second)
				if n := c.Count("") - before; n > 1000 {
					t.Errorf("%d requests in 10 s", n)
				}
			}
			if n := c.rejected.Load(); n > 20 || n == 0 && fails == "delete" {
				t.Errorf("%d log lines about rejections", n)
			}
		})
	}
}

// Rechecks of many blocked owners are spread, but none waits for more than maxRecheck longer. Rechecks that send no
// requests are not spread.
func TestSpreadOfRechecksIsBounded(t *testing.T) {
	c := &Controller{Base: controller.Base{Clock: clocktesting.NewFakeClock(began)}, state: newTermState()}
	for n := range 20_000 {
		c.state.setOwner(keyOf(uid(n)), ownerRecord{cause: causeRejected})
	}
	longest := time.Duration(0)
	for range 50 {
		result, _ := c.recordBlockage(t.Context(), keyOf(uid(1)), object{}, ownerRecord{since: began}, blockage{}, errRejected)
		longest = max(longest, result.RequeueAfter)
	}
	if longest > minRecheck+maxRecheck || longest < minRecheck+maxRecheck/2 {
		t.Errorf("the longest recheck is after %v", longest)
	}
	for n := range 20_000 {
		c.state.setOwner(keyOf(uid(n)), ownerRecord{cause: causeUnlistedType})
	}
	listing := blockage{cause: causeUnlistedType, after: cycleDelay}
	result, _ := c.recordBlockage(t.Context(), keyOf(uid(1)), object{}, ownerRecord{since: began}, listing, nil)
	fakeapi.Want(t, "recheck while a type is being listed", result.RequeueAfter, cycleDelay)
}

func TestCountsOfOwners(t *testing.T) {
	state := newTermState()
	for n, changed := range []time.Time{began, began.Add(time.Minute), {}} {
		state.setOwner(keyOf(uid(n+1)), ownerRecord{cause: causeFinalizers, blockersChanged: changed})
	}
	_, longest := state.counts(began.Add(time.Hour))
	fakeapi.Want(t, "longest time without a change", longest, time.Hour)
	state.rejections.ReserveN(began, failuresBurst)
	state.reset()
	fakeapi.Want(t, "rejections of an earlier term", int(failuresBurst-state.rejections.TokensAt(began)), 0)
	causes, _ := state.counts(began.Add(time.Hour))
	fakeapi.Want(t, "causes in the next term", len(causes), 0)
}

// The dependents of an owner in foreground deletion may take much memory, and no sweep reads them.
func TestListsCollectDependentsOfOrphaning(t *testing.T) {
	state := newTermState()
	state.owner(keyOf("a"), false, began)
	state.owner(keyOf("b"), true, began)
	fakeapi.Want(t, "owners whose dependents lists collect", fmt.Sprint(state.orphaning()), fmt.Sprint([]id{keyOf("b")}))
}
