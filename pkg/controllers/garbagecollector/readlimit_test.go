package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"minikcm/pkg/controller"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestReadLimiterBacksOff(t *testing.T) {
	s := time.Second
	broken, converts := errors.New("broken"), errors.New("conversion webhook for example.com/v1, Kind=Widget failed: EOF")
	type read struct {
		takes time.Duration
		err   error
		pause time.Duration // after the read
	}
	for _, tt := range []struct {
		name  string
		reads []read
	}{
		{"response", []read{{s, nil, 0}}},
		{"slow response", []read{{10 * s, nil, 0}}},
		{"errors at once", []read{{s, broken, 0}, {s, broken, 0}}},
		{"failing conversion webhook", []read{{0, converts, s}, {0, converts, 2 * s}, {0, converts, 4 * s}}},
		{"timeouts", []read{{10 * s, context.DeadlineExceeded, s}, {10 * s, context.DeadlineExceeded, 2 * s}, {10 * s, context.DeadlineExceeded, 4 * s}}},
		{"errors after long", []read{{10 * s, broken, s}, {10 * s, broken, 2 * s}}},
		{"response after timeouts", []read{{10 * s, context.DeadlineExceeded, s}, {s, nil, 0}, {10 * s, context.DeadlineExceeded, s}}},
		{"error at once after timeouts", []read{{10 * s, context.DeadlineExceeded, s}, {s, broken, 0}}},
		{"cancelled", []read{{10 * s, context.DeadlineExceeded, s}, {9 * s, context.Canceled, 0}, {10 * s, context.DeadlineExceeded, 2 * s}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(began)
			l, typ := newReadLimiter(clk, 2, nil), configMaps.WithVersion("v1")
			for n, r := range tt.reads {
				err := l.do(t.Context(), typ, func(context.Context) error { clk.Step(r.takes); return r.err })
				if !errors.Is(err, r.err) {
					t.Fatalf("read %d: %v, want %v", n, err, r.err)
				}
				if got := l.backoffOf(typ, 0); got != r.pause {
					t.Errorf("pause after read %d is %v, want %v", n, got, r.pause)
				}
				if r.pause > 0 && !errors.Is(l.do(t.Context(), typ, func(context.Context) error { return nil }), errPaused) {
					t.Errorf("a read was sent in the pause after read %d", n)
				}
				clk.Step(r.pause)
			}
		})
	}
}

// silentFor waits for the given time.
func silentFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return apierrors.NewTimeoutError("no response", 0)
	}
}

// on replaces the client and the clock of a shell in a synctest bubble.
func (s *shell) on(do func(ctx context.Context, verb, resource, namespace, name string) (*thing, error)) {
	c, client := s.Controller, apiCalls{do: oneThing(do)}
	c.deps.Clock, c.deps.Metadata = clock.RealClock{}, client
	c.graph.clock, c.graph.began, c.graph.enqueue = c.deps.Clock, time.Now(), c.enqueue
	c.types.deps.Clock = c.deps.Clock
	for _, k := range c.types.types {
		k.feedState = feedState{current, time.Now().Add(-time.Hour)}
	}
	s.discover(time.Now())
	c.owners, c.sweeper = newOwnerReader(client, c.deps.Clock, c.graph, c.types), newSweeper(client, c.deps.Clock, c.graph, c.types, c.state.finishing)
	c.writer = newWriter(client, c.deps.Clock, false, c.metrics)
	loop := controller.LoopConfig{Controller: Name, Queue: queueObjects, Workers: 20, Drain: time.Minute, Clock: c.deps.Clock}
	c.objectLoop = controller.NewLoop(loop, prometheus.NewRegistry(), c.reconcileObject).GroupBy(c.graph.groupOf)
	loop.Queue = queueOwners
	c.ownerLoop = controller.NewLoop(loop, prometheus.NewRegistry(), c.reconcileOwner).GroupBy(c.graph.groupOf)
}

var widgetsType = objectType{schema.GroupResource{Group: "example.com", Resource: "widgets"}, "Widget", true}

// Reads of one type hang, as behind a conversion webhook without responses. Objects with other owners in the same
// namespaces are deleted, and the term ends at once.
func TestHangingReadsDelayNoOtherOwner(t *testing.T) {
	t.Run("of owners", func(t *testing.T) { testHangingReads(t, true) })
	t.Run("of dependents", func(t *testing.T) { testHangingReads(t, false) })
}

func testHangingReads(t *testing.T, ofOwners bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t)
		hanging := s.serve(t, objectType{widgetsType.GroupResource, "Widget", ofOwners}, "v1")
		var questions atomic.Int32
		deleted := make(chan string, 1000)
		s.on(func(ctx context.Context, verb, resource, namespace, name string) (*thing, error) {
			switch {
			case resource == "widgets":
				questions.Add(1)
				return nil, silentFor(ctx, 10*time.Second)
			case verb == "delete":
				deleted <- namespace + "/" + name
				return nil, nil
			}
			return nil, notFound(name)
		})
		for n := range 400 {
			feed, owner := hanging, ref("v1", "ConfigMap", fmt.Sprint("w", n), uid(1000+n))
			if ofOwners {
				s.types.types[widgetsType.GroupResource].feedState = feedState{listing, time.Now().Add(-time.Hour)}
				feed, owner.APIVersion, owner.Kind = s.feed, "example.com/v1", "Widget"
			}
			check(t, feed.Add(newThing(fmt.Sprint("n", n%5), fmt.Sprint("d", n), uid(2000+n)).at("1").owned(owner)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		for minute := range 10 {
			for range 6 {
				time.Sleep(10 * time.Second)
				if err := s.Healthy(); err != nil {
					t.Fatal(err)
				}
			}
			owner := newThing("n1", fmt.Sprint("owner", minute), uid(3000+minute))
			dependent := newThing("n1", fmt.Sprint("of", minute), uid(4000+minute)).at("1").owned(ref("v1", "ConfigMap", owner.Name, owner.UID))
			check(t, errors.Join(s.feed.Add(owner), s.feed.Add(dependent), s.feed.Delete(owner)))
			begun := time.Now()
			if got := <-deleted; got != "n1/"+dependent.Name || time.Since(begun) > 2*time.Second {
				t.Errorf("minute %d: %s was deleted after %v", minute, got, time.Since(begun))
			}
			check(t, s.feed.Delete(dependent))
		}
		if n := questions.Load(); n > 100 {
			t.Errorf("%d reads were sent to an API that does not respond", n)
		}
		if got := s.counts()["unable"]; ofOwners && got != 400 {
			t.Errorf("%d dependents are counted as held, want 400: %v", got, s.counts())
		}
		begun := time.Now()
		cancel()
		check(t, <-ended)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the term took %v to end", took)
		}
	})
}

// Reads that wait for a turn are not sent after the end of the term.
func TestNoReadsAfterTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t)
		var questions atomic.Int32
		s.on(func(ctx context.Context, verb, _, _, name string) (*thing, error) {
			questions.Add(1)
			return nil, silentFor(ctx, time.Minute)
		})
		for n := range 40 {
			check(t, s.feed.Add(newThing("a", fmt.Sprint("o", n), uid(5000+n)).at("1").finalizedBy("orphan").deleted()))
			check(t, s.feed.Add(newThing("a", fmt.Sprint("d", n), uid(2000+n)).at("1").owned(ref("v1", "ConfigMap", "x", uid(1000+n)), ref("v1", "ConfigMap", fmt.Sprint("w", n), uid(1000+n)))))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second)
		before, begun := questions.Load(), time.Now()
		cancel()
		check(t, <-ended)
		if after := questions.Load(); before == 0 || after != before || time.Since(begun) > 0 {
			t.Errorf("%d questions before the end of the term, %d after it, which took %v", before, after-before, time.Since(begun))
		}
	})
}

func typeCalled(name string) []apiType {
	return []apiType{{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name}, namespaced: true}}
}

// testSweeper has no types in the graph, so each namespace is listed.
func testSweeper(do func(ctx context.Context, verb, resource, namespace, name string) (*thing, error)) *sweeper {
	return newSweeper(apiCalls{do: oneThing(do)}, clock.RealClock{}, nil, &knownTypes{}, func() map[id]bool { return map[id]bool{} })
}

// A paused type returns no dependents of an older list.
func TestPausedTypeHasNoOlderDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		s := testSweeper(func(context.Context, string, string, string, string) (*thing, error) {
			if fails {
				return nil, context.DeadlineExceeded
			}
			return newThing("a", "dependent", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1))), nil
		})
		for n, want := range []int{1, 0, 0} { // the last sweep finds the type paused
			fails = n > 0
			time.Sleep(listValidFor / 2)
			found, unlisted, err := s.sweep(t.Context(), typeCalled("pods"), object{namespace: "a", uid: uid(1)}, time.Now())
			if check(t, err); len(found) != want || len(unlisted) != 1-want {
				t.Errorf("sweep %d: found %v, unlisted %v", n, found, unlisted)
			}
		}
	})
}

// 24 owners in as many namespaces are orphaned while the lists of one type hang. Sweeps of other types do not wait.
func TestHangingListsDelayNoOtherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		s := testSweeper(func(ctx context.Context, _, resource, _, _ string) (*thing, error) {
			if resource != "hanging" {
				return nil, nil
			}
			sent.Add(1)
			return nil, silentFor(ctx, time.Minute)
		})
		sweep := func(name, namespace string) ([]unlistedType, error) {
			_, unlisted, err := s.sweep(t.Context(), typeCalled(name), object{namespace: namespace, uid: uid(1)}, time.Now())
			return unlisted, err
		}
		quick := func(when string) {
			t.Helper()
			begun := time.Now()
			if unlisted, err := sweep("quick", "elsewhere"); err != nil || len(unlisted) > 0 || time.Since(begun) > 0 {
				t.Errorf("%s, after %v: %v, %v", when, time.Since(begun), unlisted, err)
			}
		}
		var busy atomic.Int32
		for n := range 24 {
			go func() {
				if _, err := sweep("hanging", fmt.Sprint("n", n)); errors.Is(err, errBusy) {
					busy.Add(1)
				}
			}()
		}
		synctest.Wait()
		quick("at once")
		time.Sleep(slotTimeout)
		synctest.Wait()
		quick("while lists hang")
		if sent.Load() != listsOfType || busy.Load() != 24-listsOfType {
			t.Errorf("%d lists in flight and %d busy sweeps", sent.Load(), busy.Load())
		}
		time.Sleep(time.Minute - slotTimeout)
		synctest.Wait()
		before := sent.Load()
		for n := range 24 {
			if unlisted, err := sweep("hanging", fmt.Sprint("n", n)); err != nil || len(unlisted) != 1 {
				t.Errorf("%v, %v, want one unlisted type", unlisted, err)
			}
		}
		if sent.Load() != before {
			t.Errorf("%d lists were sent in the pause", sent.Load()-before)
		}
		time.Sleep(minBackoff)
		go func() { _, _ = sweep("hanging", "a") }()
		synctest.Wait()
		if unlisted, err := sweep("hanging", "b"); sent.Load() != before+1 || err != nil || len(unlisted) != 1 {
			t.Errorf("%v, %v: %d lists probe the type, want one", unlisted, err, sent.Load()-before)
		}
		time.Sleep(2 * time.Minute)
	})
}

// All sweeps together have at most listsInAll lists in flight.
func TestListsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		s := testSweeper(func(context.Context, string, string, string, string) (*thing, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil, nil
		})
		var types []apiType
		for n := range 60 {
			types = append(types, typeCalled(fmt.Sprint("t", n))...)
		}
		for n := range 30 {
			go func() {
				_, _, _ = s.sweep(t.Context(), types, object{namespace: fmt.Sprint("n", n), uid: uid(1)}, time.Now())
			}()
		}
		time.Sleep(10 * time.Minute)
		if most.Load() > listsInAll || most.Load() < listsInAll || now.Load() > 0 {
			t.Errorf("%d lists at once, and %d in the end", most.Load(), now.Load())
		}
	})
}

// Errors without delay concern one namespace: a missing permission, or a restart of the API server.
func TestFailedListDelaysNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testSweeper(func(_ context.Context, _, _, namespace, _ string) (*thing, error) {
			switch namespace {
			case "panics":
				panic("as tests do")
			case "refused":
				return nil, apierrors.NewResourceExpired("too old")
			}
			return nil, nil
		})
		sweep := func(namespace string) (unlisted []unlistedType, err error) {
			err = controller.Contain(func() error { // as the loop does
				_, unlisted, err = s.sweep(t.Context(), typeCalled("pods"), object{namespace: namespace, uid: uid(1)}, time.Now())
				return err
			})
			return unlisted, err
		}
		for range 3 {
			for _, failing := range []string{"refused", "panics"} {
				if unlisted, err := sweep(failing); err == nil && len(unlisted) != 1 {
					t.Errorf("%q: %v", failing, unlisted)
				}
				if unlisted, err := sweep("fine"); err != nil || len(unlisted) > 0 {
					t.Errorf("after %q: %v, %v", failing, unlisted, err)
				}
				time.Sleep(listValidFor)
			}
		}
	})
}

// A foreground deletion waits half a minute for the first list of a type.
func TestForegroundWaitsForFirstLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t)
		s.serve(t, widgetsType, "v1")
		finalized := make(chan struct{}, 100)
		s.on(func(ctx context.Context, verb, resource, _, name string) (*thing, error) {
			switch {
			case verb == "list" && resource == "widgets":
				return nil, silentFor(ctx, time.Minute)
			case verb == "get":
				return newThing("a", name, uid(1)).at("3").finalizedBy("foregroundDeletion").deleted(), nil
			case verb == "patch":
				finalized <- struct{}{}
			}
			return nil, nil
		})
		s.types.types[widgetsType.GroupResource].feedState = feedState{listing, time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		begun := time.Now()
		check(t, s.feed.Add(newThing("a", "o", uid(1)).at("3").finalizedBy("foregroundDeletion").deleted()))
		<-finalized
		if took := time.Since(begun); took < dependentListTimeout || took > dependentListTimeout+2*time.Second {
			t.Errorf("the owner went after %v", took)
		}
		cancel()
		check(t, <-ended)
	})
}

func TestRejectionsShareARate(t *testing.T) {
	all, now := rate.NewLimiter(rejectedPerSecond, rejectedBurst), began
	var last objectRecord
	for range 2000 {
		last = objectRecord{}.rejection(remove, "5", "no", all, now)
	}
	if got, least := last.backoff(remove, now), 1800/rejectedPerSecond*time.Second; got < least || got > least+2*time.Second {
		t.Errorf("the last of 2,000 rejected requests is sent again after %v, want about %v", got, least)
	}
}

func TestStandstillIsCountedFromTheLastChange(t *testing.T) {
	begin := time.Unix(1e9, 0)
	m := newTermState()
	for key, moved := range map[id]time.Time{object{uid: "a"}.key(): begin, object{uid: "b"}.key(): begin.Add(time.Minute), object{uid: "c"}.key(): {}} {
		m.setOwner(key, ownerRecord{cause: causeFinalizers, blockersChanged: moved})
	}
	if _, got := m.counts(begin.Add(time.Hour)); got != time.Hour {
		t.Errorf("longest standstill is %v, want 1h", got)
	}
	m.forgetOwner(object{uid: "a"}.key())
	if _, got := m.counts(begin.Add(time.Hour)); got != 59*time.Minute {
		t.Errorf("longest standstill without the first is %v, want 59m", got)
	}
	m.reset()
	if _, got := m.counts(begin.Add(time.Hour)); got != 0 {
		t.Errorf("longest standstill of none is %v", got)
	}
}
