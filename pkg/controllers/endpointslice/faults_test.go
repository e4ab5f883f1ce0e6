package endpointslice

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
)

// right reports whether each pod is in exactly one slice of the Service.
func (w *world) right(service string, pods int) error {
	seen := map[string]int{}
	for _, slice := range w.slices(service) {
		for _, e := range slice.Endpoints {
			seen[e.TargetRef.Name]++
		}
	}
	for name, n := range seen {
		if n != 1 {
			return fmt.Errorf("pod %s is in %d slices", name, n)
		}
	}
	if len(seen) != pods {
		return fmt.Errorf("%d pods are in slices, want %d", len(seen), pods)
	}
	return nil
}

// crowd is Service a with pods, enough for several slices of two.
func crowd(pods int) []runtime.Object {
	objects := []runtime.Object{aService("a"), aNode("n1", "")}
	for i := range pods {
		objects = append(objects, aPod("a", i))
	}
	return objects
}

// A term over slices that are as computed sends no writes, and reads only the baseline.
func TestTakeOverSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []runtime.Object{aNode("n1", "")}
		for i := range 100 {
			app := fmt.Sprintf("app%d", i)
			objects = append(objects, aService(app), aPod(app, i))
		}
		w := newWorld(t, objects...)
		w.manager()()
		before, lists := w.writes(), w.Count("list endpointslices")
		if before != 100 {
			t.Fatalf("%d writes of the first term, want 100", before)
		}
		defer w.manager()()
		w.Until(time.Minute)
		if got := w.writes() - before; got != 0 {
			t.Errorf("%d writes, want none", got)
		}
		if got := w.Count("list endpointslices") - lists; got != 2 {
			t.Errorf("%d lists of slices, want that of the cache and that of the baseline", got)
		}
	})
}

// The caches of the next leader lack the last changes, which its predecessor has written.
func TestHandOverWithFrozenWatches(t *testing.T) {
	moved := func(w *world) {
		w.Put(versioned(aService("a", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(443) })))
	}
	gone := func(w *world) { w.Remove("services", "default", "a") }
	for _, tt := range []struct {
		frozen string
		change func(*world)
		want   string // endpoints of pod 1 to 3, of which pod 3 goes before the hand-over and pod 2 after that
	}{
		{"pods", moved, "IPv4 web:443, 10.0.0.2 ready serving"},
		{"services", moved, "IPv4 web:443, 10.0.0.2 ready serving"},
		{"endpointslices", moved, "IPv4 web:443, 10.0.0.2 ready serving"},
		{"services endpointslices", moved, "IPv4 web:443, 10.0.0.2 ready serving"},
		{"services", gone, "IPv4 web:8080, 10.0.0.2 ready serving, 10.0.0.3 ready serving, 10.0.0.4 ready serving"},
	} {
		inBubble(t, tt.frozen, func(t *testing.T) {
			w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1), aPod("a", 2), aPod("a", 3))
			w.manager()()
			next, stop := w.standby()
			defer stop()
			latest := map[string]string{"pods": "1"} // which the cache of the next leader has reached
			for _, resource := range strings.Fields(tt.frozen) {
				w.Freeze(resource, true)
				latest[resource] = "1000"
			}
			for resource, version := range latest {
				w.PrependReactor("list", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
					handled, list, err := w.React(a)
					if err == nil {
						list.(metav1.ListInterface).SetResourceVersion(version)
					}
					return handled, list, err
				})
			}
			tt.change(w)
			w.Remove("pods", "default", "a-3")
			w.manager()()
			w.Remove("pods", "default", "a-2")
			defer fakeapi.Term(t, next.Run)()
			for i, frozen := range []bool{true, false} {
				w.Until(time.Duration(i+1) * time.Minute)
				if diff := cmp.Diff([]string{tt.want}, w.show("a")); diff != "" {
					t.Errorf("slices, watches frozen %v (-want +got):\n%s", frozen, diff)
				}
				for _, resource := range strings.Fields(tt.frozen) {
					w.Freeze(resource, false)
				}
			}
		})
	}
}

// The process dies after each write, and another process goes on with a fresh or a frozen cache.
func TestKilledAfterEachWrite(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		for n := int64(1); n <= 4; n++ {
			inBubble(t, fmt.Sprintf("frozen %v, write %d", frozen, n), func(t *testing.T) {
				w := newWorld(t, crowd(7)...)
				w.cfg.MaxEndpoints = 2
				first, stopFirst := w.standby()
				second, stopSecond := w.standby()
				defer stopSecond()
				w.Freeze("endpointslices", frozen)
				var writes atomic.Int64
				w.After(func() {
					if writes.Add(1) >= n {
						w.Break(errors.New("killed"), "create endpointslices", "update endpointslices", "delete endpointslices")
					}
				})
				end := fakeapi.Term(t, first.Run)
				end()
				stopFirst()
				w.After(nil)
				w.Break(nil, "create endpointslices", "update endpointslices", "delete endpointslices")
				defer fakeapi.Term(t, second.Run)()
				w.Until(time.Minute)
				if err := w.right("a", 7); err != nil {
					t.Errorf("slices %q: %v", w.show("a"), err)
				}
				if got := len(w.slices("a")); got != 4 {
					t.Errorf("%d slices, want 4", got)
				}
			})
		}
	}
}

// Responses of writes are lost after the writes are done, while the cache shows nothing.
func TestLostResponses(t *testing.T) {
	for _, verb := range []string{"create", "update", "delete"} {
		inBubble(t, verb, func(t *testing.T) {
			w := newWorld(t, crowd(7)...)
			w.cfg.MaxEndpoints = 2
			lost := w.LoseResponse(verb, "endpointslices")
			defer w.manager()()
			w.Until(time.Second / 2)
			w.Freeze("endpointslices", true)
			w.Remove("pods", "default", "a-0")
			w.Remove("pods", "default", "a-1")
			w.change(aPod("a", 6), unready)
			w.Until(time.Second)
			w.Freeze("endpointslices", false)
			w.Remove("pods", "default", "a-2")
			w.Remove("pods", "default", "a-3")
			w.Until(2 * time.Minute)
			if !lost.Load() {
				t.Errorf("no %s was sent", verb)
			}
			if err := w.right("a", 3); err != nil {
				t.Errorf("slices %q: %v", w.show("a"), err)
			}
		})
	}
}

// A create whose response is lost is repeated under the same name, because the API server may execute the first create
// later, or has executed the create and the watch of slices lags.
func TestLostCreateMakesOneSlice(t *testing.T) {
	for _, executed := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("executed %v", executed), func(t *testing.T) {
			w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1))
			w.Freeze("endpointslices", true)
			var first clienttesting.Action
			w.PrependReactor("create", "endpointslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if first != nil {
					return false, nil, nil
				}
				slice := a.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice).DeepCopy()
				slice.UID = "first"
				first = clienttesting.NewCreateAction(sliceResource, slice.Namespace, slice)
				if executed {
					_, _, _ = w.React(first)
				}
				return true, nil, errors.New("connection reset")
			})
			defer w.manager()()
			w.Until(20 * time.Second)
			if _, _, err := w.React(first); !apierrors.IsAlreadyExists(err) {
				t.Errorf("first create at the end: %v, want AlreadyExists", err)
			}
			if got := w.show("a"); !slices.Equal(got, []string{"IPv4 web:8080, 10.0.0.2 ready serving"}) {
				t.Errorf("slices %q, want one", got)
			}
		})
	}
}

// A sync waits while the cache does not show the own writes. After 30 s the slices are read live.
func TestSyncWaitsForOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1))
		defer w.manager()()
		w.Until(5 * time.Second)
		w.Freeze("endpointslices", true)
		w.Put(aPod("a", 2))
		w.Until(10 * time.Second)
		before := w.writes()
		w.Remove("pods", "default", "a-2") // the slices that the cache shows are right again
		w.Until(30 * time.Second)
		if got := w.writes() - before; got != 0 {
			t.Errorf("%d writes decided on an old cache", got)
		}
		w.Until(50 * time.Second)
		if diff := cmp.Diff([]string{"IPv4 web:8080, 10.0.0.2 ready serving"}, w.show("a")); diff != "" {
			t.Errorf("slices after the live read (-want +got):\n%s", diff)
		}
		w.Freeze("endpointslices", false)
		w.Until(2 * time.Minute)
		if diff := cmp.Diff([]string{"IPv4 web:8080, 10.0.0.2 ready serving"}, w.show("a")); diff != "" {
			t.Errorf("slices at the end (-want +got):\n%s", diff)
		}
	})
}

// The cache never shows a slice that was created and deleted between two lists.
func TestSliceThatTheCacheNeverShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1))
		c, stop := w.standby()
		defer stop()
		w.CutWatches("endpointslices")
		defer fakeapi.Term(t, c.Run)()
		w.deleteSlice(w.only("a"))
		w.RestoreWatches("endpointslices")
		w.Put(aPod("a", 2))
		w.Until(2 * time.Minute)
		if err := w.right("a", 2); err != nil {
			t.Errorf("slices %q: %v", w.show("a"), err)
		}
	})
}

// metric returns the sum of a metric of the library over all labels.
func metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "endpoint_slice_controller_"+name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// A webhook rejects slices for hours. Upstream gives up after 15 retries.
func TestRejectedSlicesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := metric(t, "changes")
		w := newWorld(t, versioned(aService("a")), aNode("n1", ""), aPod("a", 1))
		w.Break(apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "", errors.New("denied by the webhook")), "create endpointslices")
		defer w.manager()()
		w.Until(3 * time.Hour)
		if lists, gets := w.Count("list pods"), w.Count("get services"); lists > 10 || gets > 1 {
			t.Errorf("%d lists of pods and %d reads of the Service, want none for a retry", lists, gets)
		}
		creates := w.Requests("create endpointslices")
		if len(creates) < 100 || len(creates) > 200 {
			t.Errorf("%d creates in three hours, want one per minute", len(creates))
		}
		if first := creates[1].At.Sub(creates[0].At); first < minBackoff || first > 2*minBackoff {
			t.Errorf("first retry after %v, want %v", first, minBackoff)
		}
		events := w.reasons()
		const want = "Warning FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service default/a: "
		if len(events) != len(creates) || !strings.HasPrefix(events[0], want) || !strings.Contains(events[0], "denied by the webhook") {
			t.Errorf("%d events for %d creates, the first %q", len(events), len(creates), events[0])
		}
		w.Break(nil, "create endpointslices")
		w.Until(3*time.Hour + 2*time.Minute)
		if err := w.right("a", 1); err != nil {
			t.Error(err)
		}
		if got := metric(t, "changes") - counted; got != 1 {
			t.Errorf("metric counts %v creates, want only the one that succeeded", got)
		}
	})
}

// The write meets a conflict, and the watch of slices stays frozen: a live read after ConsistencyTimeout shows the
// slice.
func TestConflictIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1))
		defer w.manager()()
		w.Until(5 * time.Second)
		w.Freeze("endpointslices", true)
		slice := versioned(versioned(w.only("a")))
		slice.Endpoints, slice.Generation = nil, slice.Generation+1
		w.Put(slice)
		w.Break(apierrors.NewConflict(discoveryv1.Resource("endpointslices"), slice.Name, errors.New("modified")), "update endpointslices")
		w.Put(aPod("a", 2))
		w.Until(6 * time.Second)
		w.Break(nil, "update endpointslices")
		if len(w.reasons()) == 0 {
			t.Error("no write met a conflict")
		}
		w.Until(6*time.Second + controller.ConsistencyTimeout + controller.ConsistencyRecheck)
		if err := w.right("a", 2); err != nil {
			t.Errorf("slices %q: %v", w.show("a"), err)
		}
	})
}

// The version at the start of a term is unknown: a first write is decided on a live list.
func TestUnknownBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aService("b"), aNode("n1", ""), aPod("a", 1))
		w.PrependReactor("list", "endpointslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
			all := a.(clienttesting.ListActionImpl).ListOptions.Limit == 1
			return all, nil, map[bool]error{true: apierrors.NewInternalError(errors.New("down"))}[all]
		})
		defer w.manager()()
		w.Until(10 * time.Second)
		if want := []string{"IPv4 web:8080, 10.0.0.2 ready serving"}; !slices.Equal(w.show("a"), want) {
			t.Errorf("slices %q, want %q", w.show("a"), want)
		}
		if got := w.Count("list endpointslices"); got != 3 {
			t.Errorf("%d lists, want that of the cache and one per Service", got)
		}
	})
}
