package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/pkg/controller"
)

// owner adds an owner that is being deleted with a finalizer to the graph and the API server.
func (s *shell) owner(t *testing.T, finalizer string) id {
	t.Helper()
	o := func() *thing { return newThing("a", "o", uid(1)).at("3").finalizedBy(finalizer).deleted() }
	check(t, s.feed.Add(o()))
	s.get = func(name string, _ int) (*thing, error) {
		if name == "o" {
			return o(), nil
		}
		return nil, notFound(name)
	}
	return keyOf(uid(1))
}

// newEvents returns the events since the last call.
func (s *shell) newEvents() (all []string) {
	for {
		select {
		case e := <-s.events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (s *shell) finish(t *testing.T, key id) controller.Result {
	t.Helper()
	result, err := s.reconcileOwner(t.Context(), key)
	check(t, err)
	return result
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Without discovery, dependents of unknown types would stay behind.
func TestOwnersWaitForDiscovery(t *testing.T) {
	for _, finalizer := range []string{"foregroundDeletion", "orphan"} {
		t.Run(finalizer, func(t *testing.T) {
			s := newShell(t)
			s.discover(time.Time{})
			key := s.owner(t, finalizer)
			for range 10 {
				if got := s.finish(t, key); got.RequeueAfter <= 0 || got.RequeueAfter > minBackoff {
					t.Errorf("looked at again after %v, want soon", got.RequeueAfter)
				}
				s.clock.Step(time.Minute)
			}
			if got := s.sentRequests("patch"); len(got) > 0 {
				t.Errorf("sent was %q, want nothing", got)
			}
			if got := s.counts(); got[string(causeUnlistedType)] != 1 {
				t.Errorf("held are %v, want one for %s", got, causeUnlistedType)
			}
			if got := s.newEvents(); len(got) == 0 || !strings.Contains(got[0], "any type") {
				t.Errorf("events are %q, want one that says why", got)
			}
			s.discover(s.clock.Now())
			s.finish(t, key)
			if got := s.sentRequests("patch"); len(got) != 1 {
				t.Errorf("sent was %q, want the finalizer taken away", got)
			}
		})
	}
}

// A type may be defined, and get objects, just before an owner is deleted.
func TestOrphansOfNewTypes(t *testing.T) {
	s := newShell(t)
	s.clock.Step(time.Hour)
	key := s.owner(t, "orphan")
	s.list = func(resource string) ([]*thing, error) {
		if resource == "replicasets" && !s.patched["d"] {
			return []*thing{newThing("a", "d", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1)))}, nil
		}
		return nil, nil
	}
	s.patch = func(string, int) error { s.clock.Step(time.Millisecond); return nil }
	if got := s.finish(t, key); got.RequeueAfter != minDiscovery || len(s.sentRequests("patch")) > 0 {
		t.Fatalf("with a catalogue of an hour ago %q was sent, and %v later it goes on", s.sentRequests("patch"), got.RequeueAfter)
	}
	s.clock.Step(minDiscovery)
	s.serve(t, replicaSets, "v1")
	s.discover(s.clock.Now())
	s.finish(t, key)
	got := s.sentRequests("patch")
	if len(got) != 2 || !strings.HasPrefix(got[0], "patch replicasets d ") || !slices.ContainsFunc(got[1:], func(p string) bool { return strings.HasPrefix(p, "patch configmaps o ") }) {
		t.Errorf("sent was %q, want the reference taken away and then the finalizer", got)
	}
}

// Discovery of another API server may lag behind a new definition.
func TestOrphansOfDefinedTypeAwaitDiscovery(t *testing.T) {
	s := newShell(t)
	s.clock.Step(time.Hour)
	s.types.defined["widgets.example.com"] = s.clock.Now()
	key := s.owner(t, "orphan")
	s.finish(t, key)
	s.clock.Step(minDiscovery)
	s.discover(s.clock.Now()) // without the type
	s.finish(t, key)
	if got := s.sentRequests("patch"); len(got) > 0 {
		t.Errorf("sent was %q: orphans of the type would be lost", got)
	}
	if got := s.counts(); got[string(causeUnlistedType)] != 1 {
		t.Errorf("held are %v, want one for %s", got, causeUnlistedType)
	}
	s.clock.Step(definitionLag) // the definition was not accepted
	s.finish(t, key)
	if got := s.sentRequests("patch"); len(got) != 1 {
		t.Errorf("sent was %q, want the finalizer taken away", got)
	}
}

// orphans has an owner that leaves two orphans. Lists show each of them until its reference is removed.
func (s *shell) orphans(t *testing.T) id {
	t.Helper()
	key := s.owner(t, "orphan")
	var all []*thing
	for n := range 2 {
		d := newThing("a", fmt.Sprint("d", n), uid(2+n)).owned(ref("v1", "ConfigMap", "o", uid(1)))
		check(t, s.feed.Add(d))
		all = append(all, d)
	}
	s.list = func(resource string) (left []*thing, err error) {
		for _, d := range all {
			if resource == "configmaps" && !s.patched[d.Name] {
				left = append(left, d)
			}
		}
		return left, nil
	}
	s.ready(key)
	return key
}

// ready makes discovery newer than the deletion of an owner.
func (s *shell) ready(key id) {
	s.state.owner(key, true, s.clock.Now())
	s.clock.Step(time.Second)
	s.discover(s.clock.Now())
}

// While a type cannot be listed, only this type is listed again. A sweep of all types takes hundreds of requests in a
// large cluster.
func TestOnlyUnlistedTypesAreListedAgain(t *testing.T) {
	s := newShell(t)
	s.serve(t, replicaSets, "v1")
	s.serve(t, nodesType, "v1")
	key := s.orphans(t)
	listed, broken := s.list, true
	s.list = func(resource string) ([]*thing, error) {
		if broken && resource == "replicasets" {
			return nil, apierrors.NewInternalError(errors.New("conversion webhook"))
		}
		return listed(resource)
	}
	if got := s.finish(t, key); got.RequeueAfter <= 0 || len(s.sentRequests("list")) != 2 || len(s.sentRequests("patch")) != 2 {
		t.Fatalf("at first %q was sent, want both types listed, and the references taken away", s.sentRequests(""))
	}
	for n := range 2 {
		check(t, s.feed.Add(newThing("a", fmt.Sprint("d", n), uid(2+n)).at("9")))
	}
	s.list = func(resource string) ([]*thing, error) {
		if broken {
			return nil, apierrors.NewInternalError(errors.New("conversion webhook"))
		}
		return nil, nil
	}
	s.requests = nil
	for range 5 {
		s.clock.Step(minRecheck)
		s.finish(t, key)
	}
	if got := s.sentRequests("list"); len(got) != 5 || slices.ContainsFunc(got, func(r string) bool { return r != "list replicasets" && r != "list replicasets a" }) {
		t.Errorf("listed was %q, want what could not be listed only", got)
	}
	if got := s.sentRequests("patch"); len(got) > 0 {
		t.Errorf("sent was %q", got)
	}
	broken, s.requests = false, nil
	s.clock.Step(minRecheck)
	s.finish(t, key)
	if got := s.sentRequests(""); !slices.Contains(got, "list configmaps") || len(s.sentRequests("patch configmaps o")) != 1 {
		t.Errorf("when it can be listed again %q was sent, want everything listed and the finalizer taken away", got)
	}
}

// Orphans whose patch a policy rejects block their owner. No type is listed meanwhile.
func TestRejectedOrphansBlockTheirOwner(t *testing.T) {
	s := newShell(t)
	key := s.orphans(t)
	s.patch = func(name string, _ int) error {
		if name == "d1" {
			return errPolicy
		}
		return nil
	}
	for range 3 {
		if got := s.finish(t, key); got.RequeueAfter < reportAfter/2 {
			t.Fatalf("it is looked at again in %v", got.RequeueAfter)
		}
		check(t, s.feed.Add(newThing("a", "d0", uid(2)).at("9")))
		s.clock.Step(time.Minute)
	}
	if lists, patches := s.sentRequests("list"), s.sentRequests("patch"); len(lists) != 0 || len(patches) != 4 || len(s.sentRequests("patch configmaps o")) > 0 {
		t.Errorf("sent was %q and %q, want no list, and d1 tried three times", lists, patches)
	}
	if got := s.newEvents(); len(got) == 0 || !strings.Contains(got[0], "a policy keeps it") {
		t.Errorf("events are %q, want one with the response", got)
	}
	if got := s.counts(); got[string(causeRejected)] != 1 {
		t.Errorf("held are %v", got)
	}
	s.patch = func(string, int) error { return nil }
	s.finish(t, key)
	if got := s.sentRequests("patch configmaps o"); len(got) != 1 {
		t.Errorf("the finalizer was taken away %d times, want once", len(got))
	}
}

// 200 owners in as many namespaces leave one orphan each, and 200 custom types may have dependents. All sweeps together
// take at most 3 s if each request takes 5 ms.
func TestOwnersOfManyNamespacesShareSweeps(t *testing.T) {
	const owners = 200
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t)
		for n := range 200 {
			s.serve(t, objectType{schema.GroupResource{Group: "example.com", Resource: fmt.Sprint("t", n)}, fmt.Sprint("T", n), true}, "v1")
		}
		var lists atomic.Int32
		finalized := make(chan string, owners)
		object := func(n int) *thing {
			return newThing(fmt.Sprint("n", n), fmt.Sprint("o", n), uid(1000+n)).at("3").finalizedBy("orphan").deleted()
		}
		s.on(func(_ context.Context, verb, _, _, name string) (*thing, error) {
			time.Sleep(5 * time.Millisecond)
			var n int
			_, _ = fmt.Sscanf(name, "o%d", &n)
			switch {
			case verb == "list":
				lists.Add(1)
			case verb == "patch" && name[0] == 'o':
				finalized <- name
			}
			return object(n), nil
		})
		for n := range owners {
			check(t, s.feed.Add(newThing(fmt.Sprint("n", n), fmt.Sprint("d", n), uid(5000+n)).at("1").owned(ref("v1", "ConfigMap", fmt.Sprint("o", n), uid(1000+n)))))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second)
		begun := time.Now()
		for n := range owners {
			check(t, s.feed.Add(object(n)))
		}
		go func() {
			for ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
				s.types.lock.Lock()
				s.discover(time.Now())
				s.types.lock.Unlock()
			}
		}()
		for range owners {
			<-finalized
		}
		if took := time.Since(begun); took > 3*time.Second || lists.Load() > 20*200 {
			t.Errorf("took %v and %d lists", took, lists.Load())
		}
		t.Logf("took %v and %d lists", time.Since(begun), lists.Load())
		cancel()
		check(t, <-ended)
		time.Sleep(time.Second)
	})
}

// A list of all namespaces also shows references from other namespaces.
func TestOrphansOfOtherNamespacesKeepReferences(t *testing.T) {
	s := newShell(t)
	key := s.owner(t, "orphan")
	s.ready(key)
	s.list = func(string) ([]*thing, error) {
		if s.patched["d"] {
			return nil, nil
		}
		r := ref("v1", "ConfigMap", "o", uid(1))
		return []*thing{newThing("a", "d", uid(2)).owned(r), newThing("b", "e", uid(3)).owned(r)}, nil
	}
	s.patch = func(string, int) error { s.clock.Step(time.Millisecond); return nil }
	s.finish(t, key)
	if got := s.sentRequests(""); !slices.Contains(got, "list configmaps") || len(s.sentRequests("patch configmaps d")) != 1 || len(s.sentRequests("patch configmaps e")) != 0 {
		t.Errorf("sent was %q, want d patched after a list of all namespaces, and e left alone", got)
	}
}

func TestForEachStopsAfterConsecutiveErrors(t *testing.T) {
	for _, tt := range []struct {
		name        string
		failing     func(n int64) bool
		least, most int64 // calls
	}{
		{"all fail", func(int64) bool { return true }, writesAtOnce, 2 * writesAtOnce},
		{"every second one fails", func(n int64) bool { return n%2 == 0 }, 1000, 1000},
	} {
		var calls atomic.Int64
		err := forEach(t.Context(), make([]object, 1000), func(context.Context, object) error {
			if tt.failing(calls.Add(1)) {
				return errors.New("no")
			}
			return nil
		})
		if got := calls.Load(); err == nil || got < tt.least || got > tt.most {
			t.Errorf("%s: %d calls, error %v, want %d to %d calls and an error", tt.name, got, err, tt.least, tt.most)
		}
	}
}

// Failures about an owner are retried, and appear in a metric and an event.
func TestFailuresOfOwnersAreReported(t *testing.T) {
	outage := apierrors.NewInternalError(errors.New("failed calling webhook"))
	for _, tt := range []struct {
		name  string
		owner func(*shell, *testing.T) id
		why   cause
	}{
		{"it cannot be read", func(s *shell, t *testing.T) id {
			key := s.owner(t, "foregroundDeletion")
			s.get = func(string, int) (*thing, error) { return nil, outage }
			return key
		}, causeFailed},
		{"its finalizer cannot be taken away", func(s *shell, t *testing.T) id { return s.owner(t, "foregroundDeletion") }, causeFailed},
		{"nor that of one without orphans", func(s *shell, t *testing.T) id {
			key := s.owner(t, "orphan")
			s.ready(key)
			return key
		}, causeFailed},
		{"its orphans cannot be changed", func(s *shell, t *testing.T) id { return s.orphans(t) }, causeReferences},
		{"a ring cannot be broken", func(s *shell, t *testing.T) id {
			key := s.owner(t, "foregroundDeletion")
			check(t, s.feed.Add(newThing("a", "o", uid(1)).at("3").finalizedBy("foregroundDeletion").deleted().owned(blockingRef("v1", "ConfigMap", "p", uid(2)))))
			check(t, s.feed.Add(newThing("a", "p", uid(2)).finalizedBy("foregroundDeletion").deleted().owned(blockingRef("v1", "ConfigMap", "o", uid(1)))))
			return key
		}, causeDependents},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			s.patch = func(string, int) error { return outage }
			s.remove = func(int) error { return outage }
			key := tt.owner(s, t)
			_, _ = s.reconcileOwner(t.Context(), key)
			s.clock.Step(reportAfter)
			if _, err := s.reconcileOwner(t.Context(), key); !errors.Is(err, outage) {
				t.Errorf("it ends with %v, want to be tried again because of %v", err, outage)
			}
			if got := s.counts(); got[string(tt.why)] != 1 {
				t.Errorf("held are %v, want one for %s", got, tt.why)
			}
			if got := s.newEvents(); len(got) != 1 || !strings.Contains(got[0], "failed calling webhook") {
				t.Errorf("events are %q, want one with the response", got)
			}
		})
	}
}

// An event about a blocked owner is sent every ten minutes, and its text takes reads.
func TestBlockersAreReadForTheEvent(t *testing.T) {
	s := newShell(t)
	key := s.owner(t, "foregroundDeletion")
	held := newThing("a", "d", uid(2)).at("5").finalizedBy("x/y").deleted().owned(blockingRef("v1", "ConfigMap", "o", uid(1)))
	check(t, s.feed.Add(held))
	owner := s.get
	s.get = func(name string, nth int) (*thing, error) {
		if name == "d" {
			return held, nil
		}
		return owner(name, nth)
	}
	for range 20 {
		s.finish(t, key)
		s.clock.Step(reportAfter)
	}
	if got := s.sentRequests("get configmaps d"); len(got) != 1 || len(s.newEvents()) != 1 {
		t.Errorf("the blocker was read %d times in ten minutes, want once", len(got))
	}
}

func TestEventNamesUnknownOwner(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"it may not be read", errPolicy, "(refused)"},
		{"its API fails", apierrors.NewInternalError(errors.New("conversion webhook")), "(unable)"},
		{"a 404 that is not about it", apierrors.NewGenericServerResponse(404, "get", configMaps.GroupResource, "x", "404 page not found", 0, true), "(unnamed_404)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			key := s.owner(t, "foregroundDeletion")
			owner := s.get
			check(t, s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(blockingRef("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "x", uid(3)))))
			s.get = func(name string, nth int) (*thing, error) {
				if name == "x" {
					return nil, tt.err
				}
				return owner(name, nth)
			}
			s.finish(t, key)
			s.clock.Step(reportAfter)
			s.look(t, keyOf(uid(2)))
			s.finish(t, key)
			if got := s.newEvents(); len(got) != 1 || !strings.Contains(got[0], `v1 ConfigMap "x"`) || !strings.Contains(got[0], tt.want) {
				t.Errorf("events are %q, want one about x: %s", got, tt.want)
			}
		})
	}
}
