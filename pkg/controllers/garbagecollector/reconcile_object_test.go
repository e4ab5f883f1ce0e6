package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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

// A change of the object or of its owners may mean another decision, so the pause after a rejection does not delay the
// next look.
func TestRejectionDoesNotDelayOtherDecision(t *testing.T) {
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

	s = newShell(t)
	last := newThing("a", "p", uid(3))
	check(t, s.feed.Add(last))
	key = s.dependent(t, ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "p", uid(3)))
	s.patch = func(string, int) error { return errPolicy }
	for range 8 {
		s.clock.Step(s.look(t, key).RequeueAfter)
	}
	s.look(t, key)
	check(t, s.feed.Delete(last))
	if s.look(t, key); len(s.sent()) != 1 {
		t.Errorf("%d deletes were sent after the last owner had gone, want 1", len(s.sent()))
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
		{"the owner is orphaning by now", waits(), func(nth int) (*thing, error) {
			if nth == 1 {
				return waits(), nil
			}
			return owner().finalizedBy("orphan").deleted(), nil
		}, func(s *shell) { s.clock.Step(readValidFor + 1) }, 0},
		{"the owner still waits", waits(), func(int) (*thing, error) { return waits(), nil }, func(s *shell) { s.clock.Step(readValidFor + 1) }, 1},
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

// The author of an object chooses the owner names in its references. A name may be another path of the API.
func TestNameOfAnotherPathIsNotRead(t *testing.T) {
	s := newShell(t)
	owner := ref("v1", "ConfigMap", "../services/http:evil:80/proxy/x", "any")
	key := s.dependent(t, owner)
	s.look(t, key)
	if got := s.sentRequests("get configmaps"); len(got) != 0 || len(s.sent()) != 1 {
		t.Errorf("requests are %q, and %d deletes were sent, want no request for the owner", got, len(s.sent()))
	}
	at := s.types.state(configMaps.GroupResource).apiType
	if _, err := s.readAgain(t.Context(), at, object{name: "../secrets/s"}); err == nil || len(s.sentRequests("get configmaps")) > 0 {
		t.Errorf("an object was read that is called like a path: %v", err)
	}
}

// A read of the same sync stays valid until the last owner was read.
func TestSlowReadsOfManyOwnersTakeOneSync(t *testing.T) {
	for _, tt := range []struct {
		name    string
		owners  int
		takes   time.Duration // of a read
		leaving bool
	}{
		{"two owners that are gone, of slow APIs", 2, 3 * time.Second, false},
		{"two owners that wait", 2, 300 * time.Millisecond, true},
		{"thousands of owners", 3000, time.Millisecond, false},
		{"a hundred owners at one read per second", 100, time.Second, false},
		{"a hundred waiting owners at one read per second", 100, time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShell(t)
			var refs []metav1.OwnerReference
			for n := range tt.owners {
				refs = append(refs, ref("v1", "ConfigMap", fmt.Sprint("o", n), uid(10+n)))
			}
			s.get = func(name string, _ int) (*thing, error) {
				s.clock.Step(tt.takes)
				var n int
				if _, err := fmt.Sscanf(name, "o%d", &n); err != nil || !tt.leaving {
					return nil, notFound(name)
				}
				return newThing("a", name, uid(10+n)).finalizedBy("foregroundDeletion").deleted(), nil
			}
			key := s.dependent(t, refs...)
			got := s.look(t, key)
			if len(s.sent()) != 1 || len(s.sentRequests("get")) > 3*tt.owners {
				t.Errorf("%d deletes were sent after %d questions, and it is looked at again in %v", len(s.sent()), len(s.sentRequests("get")), got.RequeueAfter)
			}
		})
	}
}

func newTestWriter() *writer {
	return newWriter(nil, clock.RealClock{}, false, newMetrics(prometheus.NewRegistry()))
}

// A sync that waits for long would count as stuck.
func TestWriteWithoutSlotIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter()
		ctx, cancel := context.WithCancel(t.Context())
		for n := range allWrites {
			o := object{namespace: "a", name: fmt.Sprint("d", n), uid: uid(n)}
			go func() {
				_, _ = w.send(ctx, apiType{}, o, o.uid, requestDelete, nil, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}()
		}
		time.Sleep(5 * time.Second)
		begun := time.Now()
		o := object{namespace: "a", name: "late", uid: uid(5000)}
		_, err := w.send(t.Context(), apiType{}, o, o.uid, requestDelete, nil, func(context.Context) error { return nil })
		if took := time.Since(begun); !errors.Is(err, errBusy) || !errors.Is(err, context.Canceled) || took != slotTimeout {
			t.Errorf("after %v: %v, want errBusy after %v", took, err, slotTimeout)
		}
		cancel()
		synctest.Wait()
	})
}

// Some policies reject requests with a conflict.
func TestConflictWithoutChangeIsRejection(t *testing.T) {
	s := newShell(t)
	owner := ref("v1", "ConfigMap", "o", uid(1))
	key := s.dependent(t, owner)
	s.get = func(name string, _ int) (*thing, error) {
		if name == "d" {
			return newThing("a", "d", uid(2)).at("5").owned(owner), nil
		}
		return nil, notFound(name)
	}
	s.remove = func(int) error { return conflictOn("d") }
	if got := s.look(t, key); got.RequeueAfter != minRejectedBackoff || len(s.sent()) != 1 {
		t.Errorf("%d deletes were sent, and it is looked at again in %v", len(s.sent()), got.RequeueAfter)
	}
	if got := s.counts(); got[string(causeRejected)] != 1 {
		t.Errorf("counted are %v", got)
	}

	s = newShell(t)
	finalized := s.owner(t, "foregroundDeletion")
	s.patch = func(name string, _ int) error { return conflictOn(name) }
	if got := s.finish(t, finalized); got.RequeueAfter < minRecheck || len(s.sentRequests("patch")) > 2 {
		t.Errorf("%d patches were sent, and it is looked at again in %v", len(s.sentRequests("patch")), got.RequeueAfter)
	}

	s = newShell(t)
	orphaned := s.orphans(t)
	s.get = func(name string, _ int) (*thing, error) {
		if name == "o" {
			return newThing("a", "o", uid(1)).at("3").finalizedBy("orphan").deleted(), nil
		}
		n := 2 + int(name[1]-'0')
		return newThing("a", name, uid(n)).at("7").owned(ref("v1", "ConfigMap", "o", uid(1))), nil
	}
	s.patch = func(name string, _ int) error { return conflictOn(name) }
	if got := s.finish(t, orphaned); got.RequeueAfter < reportAfter/2 || len(s.sentRequests("patch")) > 6 {
		t.Errorf("%d patches were sent, and it is looked at again in %v", len(s.sentRequests("patch")), got.RequeueAfter)
	}
}

// Objects of aggregated API servers may have names that are no path segment. A request would go to another path, so no
// request is sent.
func TestNameOfAnotherPathIsRejected(t *testing.T) {
	s := newShell(t)
	f := s.serve(t, objectType{widgetsType.GroupResource, "Widget", true}, "v1")
	check(t, f.Add(newThing("a", "x/y", uid(2)).at("1").owned(ref("v1", "ConfigMap", "o", uid(1)))))
	s.clock.Step(time.Minute)
	var lines []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	for range 5 {
		got, err := s.reconcileObject(ctx, keyOf(uid(2)))
		if err != nil || got.RequeueAfter < minRejectedBackoff {
			t.Fatalf("looked at again after %v, %v", got.RequeueAfter, err)
		}
		s.clock.Step(got.RequeueAfter)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "Request was rejected") || len(s.sent()) > 0 {
		t.Errorf("logged was %q, and %d deletes were sent", lines, len(s.sent()))
	}
}
