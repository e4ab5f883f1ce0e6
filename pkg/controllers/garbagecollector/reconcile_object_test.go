package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
	"minikcm/pkg/outcome"
)

var errPolicy = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "d", errors.New("a policy keeps it"))

func conflictOn(name string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, name, errors.New("version"))
}

// dependent adds an object with absent owners to the graph and waits until the watch proves absence.
func (s *shell) dependent(t *testing.T, refs ...metav1.OwnerReference) id {
	t.Helper()
	check(t, s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(refs...)))
	s.clock.Step(time.Minute)
	return keyOf(uid(2))
}

func (s *shell) look(t *testing.T, key id) controller.Result {
	t.Helper()
	result, err := s.reconcileObject(t.Context(), key)
	check(t, err)
	return result
}

// A patch removes a reference by position and content: another reference with the same UID stays.
func TestReferenceWithTheSameUIDStays(t *testing.T) {
	s := newShell(t)
	check(t, s.feed.Add(newThing("a", "o", uid(1))))
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "x", uid(9)))
	s.get = func(name string, _ int) (*thing, error) {
		switch name {
		case "x":
			return newThing("a", "x", uid(8)), nil
		case "d":
			return newThing("a", "d", uid(2)).at("6").owned(ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "x", uid(1))), nil
		}
		return nil, notFound(name)
	}
	s.patch = func(name string, nth int) error {
		if nth == 1 {
			return conflictOn(name)
		}
		return nil
	}
	s.look(t, key)
	got := s.sentRequests("patch")
	if len(got) != 2 || strings.Count(got[1], `"remove"`) != 1 || !strings.Contains(got[1], `ownerReferences/1/name","value":"x"`) || strings.Contains(got[1], "ownerReferences/0") {
		t.Errorf("sent was %q, want a second patch that leaves the reference to o", got)
	}
}

// Ten thousand objects that a policy keeps must not cause a request per minute each.
func TestRejectedDeletionBacksOff(t *testing.T) {
	s := newShell(t)
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)))
	s.remove = func(int) error { return errPolicy }
	for nth, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if got := s.look(t, key); got.RequeueAfter != want || len(s.sent()) != nth+1 {
			t.Fatalf("after rejection %d it is looked at in %v with %d requests so far, want %v", nth+1, got.RequeueAfter, len(s.sent()), want)
		}
		s.clock.Step(want / 2)
		requests := len(s.sentRequests(""))
		if got := s.look(t, key); got.RequeueAfter != want/2 || len(s.sentRequests("")) != requests {
			t.Fatalf("woken half-way it is looked at in %v after %q, want no request and the rest of the pause", got.RequeueAfter, s.sentRequests("")[requests:])
		}
		s.clock.Step(want / 2)
	}
	if got := s.counts(); got[string(causeRejected)] != 1 {
		t.Errorf("counted are %v, want one rejected", got)
	}
	for range 20 {
		s.clock.Step(s.look(t, key).RequeueAfter)
	}
	if got := s.look(t, key); got.RequeueAfter != maxRejectedBackoff {
		t.Errorf("in the end the pause is %v, want %v", got.RequeueAfter, maxRejectedBackoff)
	}
	s.clock.Step(maxRejectedBackoff)
	s.remove = func(int) error { return nil }
	s.look(t, key)
	if got := s.counts(); len(got) > 0 {
		t.Errorf("counted after it went are %v", got)
	}
}

// A change of the object may mean another decision, so the pause after a rejection does not delay the next look.
func TestRejectionDoesNotDelayChangedObject(t *testing.T) {
	s := newShell(t)
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)))
	s.remove = func(int) error { return errPolicy }
	for range 10 {
		s.clock.Step(s.look(t, key).RequeueAfter)
	}
	s.look(t, key)
	check(t, s.feed.Add(newThing("a", "p", uid(3))))
	check(t, s.feed.Add(newThing("a", "d", uid(2)).at("6").owned(ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "p", uid(3)))))
	again := s.look(t, key).RequeueAfter // new references need evidence from after the change
	s.clock.Step(again)
	s.look(t, key)
	if got := s.sentRequests("patch"); len(got) != 1 || again > confirmAfter {
		t.Errorf("after %v sent was %q, want the reference to o taken away", again, got)
	}
}

func TestOwnersOfTerminatingObjectsAreNotRead(t *testing.T) {
	s := newShell(t)
	check(t, s.feed.Add(newThing("a", "d", uid(2)).at("5").finalizedBy("x/y").deleted().owned(ref("v1", "ConfigMap", "o", uid(1)))))
	s.clock.Step(time.Minute)
	if got := s.look(t, keyOf(uid(2))); got.RequeueAfter != 0 || len(s.sentRequests("")) > 0 {
		t.Errorf("sent was %q, and it is looked at again in %v", s.sentRequests(""), got.RequeueAfter)
	}
}

// Each read of an aggregated API may take almost readTimeout.
func TestObjectsOfASlowAPIAreDeleted(t *testing.T) {
	s := newShell(t)
	f := s.serve(t, objectType{widgetsType.GroupResource, "Widget", false}, "v1")
	dependent := newThing("a", "d", uid(2)).at("5").owned(ref("example.com/v1", "Widget", "o", uid(1)))
	check(t, f.Add(dependent))
	s.clock.Step(time.Minute)
	s.get = func(name string, _ int) (*thing, error) {
		s.clock.Step(readTimeout - 100*time.Millisecond)
		if name == "d" {
			return dependent, nil
		}
		return nil, notFound(name)
	}
	for range 3 {
		s.clock.Step(s.look(t, keyOf(uid(2))).RequeueAfter)
	}
	if got := s.sentRequests("delete"); len(got) == 0 {
		t.Errorf("sent was %q, want a delete", s.sentRequests(""))
	}
}

// The loop paces retries after failures: each sync ends with an error, however soon an event adds the key again.
func TestFailedDeletionIsAnError(t *testing.T) {
	s := newShell(t)
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)))
	for _, err := range []error{
		apierrors.NewInternalError(errors.New("failed calling webhook")), apierrors.NewTooManyRequests("later", 1), context.DeadlineExceeded,
		apierrors.NewGenericServerResponse(404, "delete", configMaps.GroupResource, "d", "404 page not found", 0, true),
	} {
		s.remove = func(int) error { return err }
		_, got := s.reconcileObject(t.Context(), key)
		if !errors.Is(got, err) {
			t.Errorf("answered %q it ends with %v", err, got)
		}
		if !strings.HasPrefix(got.Error(), `delete configmaps "a/d": `) {
			t.Errorf("the log is told %q, want the namespace, too", got)
		}
		if got := s.state.object(key).failure; !strings.Contains(got, outcome.EventMessage(err)) {
			t.Errorf("who asks what holds its owner is told %q, want %q", got, outcome.EventMessage(err))
		}
	}
}

// An object may get dependents while its request waits. In a foreground deletion the dependents go first.
func TestNewDependentMakesForegroundDeletion(t *testing.T) {
	s := newShell(t)
	waits := newThing("a", "o", uid(1)).finalizedBy("foregroundDeletion").deleted()
	check(t, s.feed.Add(waits))
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)))
	s.get = func(name string, nth int) (*thing, error) {
		if name == "o" {
			return waits, nil
		}
		return newThing("a", "d", uid(2)).at(fmt.Sprint(5 + nth)).owned(ref("v1", "ConfigMap", "o", uid(1))), nil
	}
	s.remove = func(nth int) error {
		if nth == 1 {
			check(t, s.feed.Add(newThing("a", "e", uid(3)).owned(ref("v1", "ConfigMap", "d", uid(2)))))
			return conflictOn("d")
		}
		return nil
	}
	s.look(t, key)
	if got := s.sent(); len(got) != 2 || *got[0].PropagationPolicy != metav1.DeletePropagationBackground || *got[1].PropagationPolicy != metav1.DeletePropagationForeground {
		t.Errorf("deletes are %v, want one in the background and then one in the foreground", got)
	}
}

// An aggregated API may ignore preconditions, so its objects are read shortly before a delete.
func TestAggregatedObjectIsReadBeforeDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShell(t)
		f := s.serve(t, widgets, "v1")
		check(t, f.Add(newThing("a", "w", uid(2)).at("5").owned(ref("v1", "ConfigMap", "o", uid(1)))))
		s.clock.Step(time.Minute)
		s.get = func(name string, nth int) (*thing, error) {
			if name == "w" && nth == 1 {
				return newThing("a", "w", uid(2)).at("6").owned(ref("v1", "ConfigMap", "o", uid(1))), nil
			} else if name == "w" { // the reference was removed
				return newThing("a", "w", uid(2)).at("7"), nil
			}
			return nil, notFound(name)
		}
		s.whileItWaits(t, keyOf(uid(2)), func() { s.clock.Step(readValidFor + 1) })
		if got := s.sent(); len(got) > 0 {
			t.Errorf("deletes are %v, want none", got)
		}
	})
}

// A read by name may find another object.
func TestReadAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		found *thing
		err   error
		there bool
		fails bool
	}{
		{"the object", newThing("a", "d", uid(2)).at("9"), nil, true, false},
		{"a namesake", newThing("a", "d", uid(7)), nil, false, false},
		{"nothing", nil, notFound("d"), false, false},
		{"404 of a server that does not know the type", nil, apierrors.NewGenericServerResponse(404, "get", configMaps.GroupResource, "d", "404 page not found", 0, true), false, true},
		{"a refusal", nil, errPolicy, false, true},
		{"no answer", nil, context.DeadlineExceeded, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			key := s.dependent(t)
			s.get = func(string, int) (*thing, error) { return tt.found, tt.err }
			was, _, _ := s.graph.observe(key)
			now, err := s.readAgain(t.Context(), s.types.state(was.resource).apiType, was)
			if (now != nil) != tt.there || (err != nil) != tt.fails || s.graph.sees(key) != (tt.there || tt.fails) {
				t.Errorf("read %v, %v; in the graph %v", now, err, s.graph.sees(key))
			}
			if tt.there && (now.version != "9" || now.live == nil || !now.read.Equal(s.clock.Now())) {
				t.Errorf("it shows %+v", now)
			}
		})
	}
}

// Objects of a type that is no longer served can neither be deleted nor patched.
func TestNoRequestsForUnservedTypes(t *testing.T) {
	s := newShell(t)
	f := s.serve(t, replicaSets, "v1")
	check(t, f.Add(newThing("a", "d", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1)))))
	check(t, f.Add(newThing("a", "e", uid(3)).finalizedBy("foregroundDeletion").deleted()))
	s.types.types[replicaSets.GroupResource].feedState = feedState{away, began}
	s.clock.Step(time.Minute)
	s.look(t, keyOf(uid(2)))
	s.finish(t, keyOf(uid(3)))
	if got := slices.Concat(s.sentRequests("delete"), s.sentRequests("patch"), s.sentRequests("get replicasets")); len(got) > 0 {
		t.Errorf("sent was %q", got)
	}
}

// A panic in a request of its own goroutine is an error of its key, and not the end of the process.
func TestPanicIsAnErrorOfItsKey(t *testing.T) {
	s := newShell(t)
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)))
	s.get = func(string, int) (*thing, error) { panic("of a test") }
	sync := func() error { _, err := s.reconcileObject(t.Context(), key); return err }
	if err := controller.Contain(sync); err == nil || !strings.Contains(err.Error(), "of a test") {
		t.Errorf("it ends with %v", err)
	}
	err := forEach(t.Context(), []object{{name: "one"}}, func(context.Context, object) error { panic("of a test") })
	if err == nil {
		t.Error("a panic about one of many is no error")
	}
	s.list = func(string) ([]*thing, error) { panic("of a test") }
	list := func() error {
		_, _, err := s.sweeper.sweep(t.Context(), typeCalled("configmaps"), object{namespace: "a", uid: uid(2)}, began)
		return err
	}
	if controller.Contain(list) == nil {
		t.Error("a panic of a list is no error")
	}
}

// A corrected reference or a new type may cause no further sync of the object.
func TestReleasedObjectIsNotCounted(t *testing.T) {
	widget := ref("example.com/v1", "Widget", "w", uid(9))
	for _, tt := range []struct {
		name    string
		happens func(*shell, *testing.T) error
		want    int
	}{
		{"nothing happens", func(*shell, *testing.T) error { return nil }, 1},
		{"its owner is seen", func(s *shell, t *testing.T) error {
			return s.serve(t, widgetsType, "v1").Add(newThing("a", "w", uid(9)))
		}, 0},
		{"its reference is taken away", func(s *shell, _ *testing.T) error { return s.feed.Add(newThing("a", "d", uid(2)).at("6")) }, 0},
		{"somebody deletes it", func(s *shell, _ *testing.T) error {
			return s.feed.Add(newThing("a", "d", uid(2)).at("6").owned(widget).finalizedBy("x/y").deleted())
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			s.look(t, s.dependent(t, widget))
			if got := s.counts()["unknown_kind"]; got != 1 {
				t.Fatalf("%d are held at first, want one", got)
			}
			check(t, tt.happens(s, t))
			s.prune()
			if got := s.counts()["unknown_kind"]; got != tt.want {
				t.Errorf("%d are held, want %d", got, tt.want)
			}
		})
	}
}

// A deletion event of an aggregated API is no proof, but causes a read.
func TestDeletionEventOfAggregatedAPICausesRead(t *testing.T) {
	s := newShell(t)
	f := s.serve(t, widgets, "v1")
	owner := newThing("a", "w", uid(9))
	s.get = func(string, int) (*thing, error) { return owner, nil }
	key := s.dependent(t, ref("example.com/v1", "Widget", "w", uid(9)))
	if got := s.look(t, key); got.RequeueAfter < pollInterval { // its own event has come first
		t.Fatalf("it is looked at again in %v, want with the next poll", got.RequeueAfter)
	}
	s.clock.Step(time.Second)
	check(t, errors.Join(f.Add(owner), f.Delete(owner)))
	s.get = func(name string, _ int) (*thing, error) { return nil, notFound(name) }
	begun := s.clock.Now()
	for len(s.sent()) == 0 && s.clock.Since(begun) < pollInterval {
		s.clock.Step(s.look(t, key).RequeueAfter)
	}
	if took := s.clock.Since(begun); took > 2*confirmAfter {
		t.Errorf("it was deleted after %v", took)
	}
}

// A dry run sends no write, counts every attempt, and backs off as after a rejection.
func TestDryRunSendsNothingAndBacksOff(t *testing.T) {
	s := newShell(t)
	s.writer.dryRun = true
	key := s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)))
	for n := range lastingRejections {
		if got := testutil.ToFloat64(s.metrics.lasting); got != 0 {
			t.Fatalf("after %d attempts %v objects are lasting", n, got)
		}
		s.clock.Step(s.look(t, key).RequeueAfter)
	}
	if now := s.clock.Now().Sub(began); now < time.Minute || now > 4*time.Minute {
		t.Errorf("%d attempts took %v", lastingRejections, now)
	}
	if got := testutil.ToFloat64(s.metrics.lasting); got != 1 {
		t.Errorf("%v objects are lasting, want 1", got)
	}
	if got := testutil.ToFloat64(s.metrics.dryRun.WithLabelValues(requestDelete)); got != lastingRejections {
		t.Errorf("%v deletes were counted, want %d", got, lastingRejections)
	}
	if got := append(s.sentRequests("delete"), s.sentRequests("patch")...); len(got) > 0 {
		t.Errorf("sent %q", got)
	}
}

// whileItWaits starts a sync of an object while no write slot is free, calls happens, and frees the slots.
func (s *shell) whileItWaits(t *testing.T, key id, happens func()) {
	t.Helper()
	var held []*writelimit.Write
	for n := 0; ; n++ {
		w := s.writer.slots.Acquire(t.Context(), cache.NewObjectName("a", fmt.Sprint(n)), s.clock.Now())
		if w == nil {
			break
		}
		held = append(held, w)
	}
	done := make(chan error)
	go func() {
		_, err := s.reconcileObject(t.Context(), key)
		done <- err
	}()
	synctest.Wait()
	happens()
	for _, w := range held {
		s.writer.slots.Release(w)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Owners may change while a request waits for a slot.
func TestDecisionIsCheckedBeforeTheRequest(t *testing.T) {
	owner := func() *thing { return newThing("a", "o", uid(1)) }
	waits := func() *thing { return owner().finalizedBy("foregroundDeletion").deleted() }
	for _, tt := range []struct {
		name    string
		before  *thing // the owner in the graph; nil: none
		get     func(nth int) (*thing, error)
		happens func(s *shell)
		sent    int
	}{
		{"nothing happens", waits(), func(int) (*thing, error) { return waits(), nil }, func(*shell) {}, 1},
		{"the owner is to make orphans, as a new answer says", waits(), func(nth int) (*thing, error) {
			if nth == 1 {
				return waits(), nil
			}
			return owner().finalizedBy("orphan").deleted(), nil
		}, func(s *shell) { s.clock.Step(readValidFor + 1) }, 0},
		{"the owner still waits, as a new answer says", waits(), func(int) (*thing, error) { return waits(), nil }, func(s *shell) { s.clock.Step(readValidFor + 1) }, 1},
		{"the feed shows an owner that lives", nil, func(int) (*thing, error) { return nil, notFound("o") }, func(s *shell) { _ = s.feed.Add(owner()) }, 0},
		{"the owner is still not there", nil, func(int) (*thing, error) { return nil, notFound("o") }, func(s *shell) { s.clock.Step(readValidFor + 1) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShell(t)
				if tt.before != nil {
					_ = s.feed.Add(tt.before)
				}
				_ = s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(ref("v1", "ConfigMap", "o", uid(1))))
				s.clock.Step(time.Minute)
				s.get = func(_ string, nth int) (*thing, error) { return tt.get(nth) }
				s.whileItWaits(t, keyOf(uid(2)), func() { tt.happens(s) })
				if got := s.sent(); len(got) != tt.sent {
					t.Errorf("%d deletes were sent, want %d", len(got), tt.sent)
				}
			})
		})
	}
}

// A delete always carries the resource version that the decision was based on.
func TestDeletesCarryTheVersionAfterConflicts(t *testing.T) {
	s := newShell(t)
	owner := ref("v1", "ConfigMap", "o", uid(1))
	_ = s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(owner))
	s.clock.Step(time.Minute)
	s.get = func(name string, nth int) (*thing, error) {
		if name != "d" {
			return nil, notFound(name)
		}
		d := newThing("a", "d", uid(2)).at(fmt.Sprint(5 + nth)).owned(owner)
		if nth > 3 {
			d.finalizedBy("x/y")
		}
		return d, nil
	}
	s.remove = func(nth int) error {
		if nth < 5 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "d", errors.New("version"))
		}
		return nil
	}
	if _, err := s.reconcileObject(context.Background(), keyOf(uid(2))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, options := range s.sent() {
		switch v := options.Preconditions.ResourceVersion; {
		case v == nil:
			got = append(got, "")
		default:
			got = append(got, *v)
		}
	}
	if want := []string{"5", "6", "7", "8", "9"}; !slices.Equal(got, want) {
		t.Errorf("deletes carry the versions %q, want %q", got, want)
	}
}

// A read found the owner before its event came. The event of its deletion follows, and no other event.
func TestReadBeforeTheDeletionDelaysNothing(t *testing.T) {
	owner := func() *thing { return newThing("a", "o", uid(1)).at("3") }
	waits := func() *thing { return owner().at("4").finalizedBy("foregroundDeletion").deleted() }
	for _, tt := range []struct {
		name    string
		happens func(t *testing.T, s *shell)
		then    func() (*thing, error) // responses of the API server after that
	}{
		{"it waits for its dependents", func(t *testing.T, s *shell) { check(t, s.feed.Add(waits())) }, func() (*thing, error) { return waits(), nil }},
		{"it is gone, as an event says", func(t *testing.T, s *shell) { check(t, s.feed.Delete(owner().at("4"))) }, func() (*thing, error) { return nil, notFound("o") }},
		{"it is gone, and the first list lacks it", func(_ *testing.T, s *shell) {
			s.types.types[configMaps.GroupResource].feedState = feedState{current, s.clock.Now().Add(-notifyDelay)}
		}, func() (*thing, error) { return nil, notFound("o") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			check(t, s.feed.Add(newThing("a", "d", uid(2)).at("5").owned(ref("v1", "ConfigMap", "o", uid(1)))))
			s.clock.Step(time.Minute)
			s.types.types[configMaps.GroupResource].feedState = feedState{listing, began}
			s.get = func(string, int) (*thing, error) { return owner(), nil }
			look := func() time.Duration {
				result, err := s.reconcileObject(t.Context(), keyOf(uid(2)))
				check(t, err)
				return result.RequeueAfter
			}
			look()
			s.clock.Step(readValidFor / 2)
			s.types.types[configMaps.GroupResource].feedState = feedState{current, began}
			tt.happens(t, s)
			s.get = func(string, int) (*thing, error) { return tt.then() }
			waited := time.Duration(0)
			for len(s.sent()) == 0 {
				after := look()
				if waited += after; after == 0 && len(s.sent()) == 0 || waited > 10*time.Second {
					t.Fatalf("the dependent is left alone, and looked at again after %v", after)
				}
				s.clock.Step(after)
			}
		})
	}
}
