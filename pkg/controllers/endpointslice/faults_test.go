package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// podsIn returns the number of pods in the slices of a Service. No pod may be in two slices.
func (w *world) podsIn(service string) int {
	w.T.Helper()
	seen := map[string]bool{}
	for _, slice := range w.slices(service) {
		for _, e := range slice.Endpoints {
			if seen[e.TargetRef.Name] {
				w.T.Errorf("slices %q: pod %s is in two slices", w.show(service), e.TargetRef.Name)
			}
			seen[e.TargetRef.Name] = true
		}
	}
	return len(seen)
}

// wantPods requires that each pod is in exactly one slice of the Service.
func (w *world) wantPods(service string, pods int) {
	w.T.Helper()
	if got := w.podsIn(service); got != pods {
		w.T.Errorf("slices %q: %d pods are in slices, want %d", w.show(service), got, pods)
	}
}

// crowd is Service a with pods, enough for several slices of two.
func crowd(pods int) []runtime.Object {
	objects := []runtime.Object{aService("a"), aNode("n1", "")}
	for i := range pods {
		objects = append(objects, aPod("a", i))
	}
	return objects
}

// The caches of the next leader lack the last changes, which the previous leader has written.
func TestHandOverWithFrozenWatches(t *testing.T) {
	moved := func(w *world) {
		w.Put(versioned(aService("a", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(443) })))
	}
	gone := func(w *world) { w.Remove("services", "default", "a") }
	manual := func(w *world) { w.Put(versioned(aService("a", func(s *corev1.Service) { s.Spec.Selector = nil }))) }
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
		{"services", manual, "IPv4 web:8080, 10.0.0.2 ready serving, 10.0.0.3 ready serving, 10.0.0.4 ready serving"},
	} {
		fakeapi.Bubble(t, tt.frozen, func(t *testing.T) {
			w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1), aPod("a", 2), aPod("a", 3))
			w.manager()()
			next, stop := w.Standby()
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
				fakeapi.WantEqual(t, fmt.Sprintf("slices, watches frozen %v", frozen), w.show("a"), []string{tt.want})
				for _, resource := range strings.Fields(tt.frozen) {
					w.Freeze(resource, false)
				}
			}
			fakeapi.WantEqual(t, "events", fakeapi.NewEvents(w.events), nil)
		})
	}
}

// Once a live read has shown a Service without a selector, an older cache does not change its slices.
func TestLiveServiceWithoutSelector(t *testing.T) {
	fakeapi.Bubble(t, "", func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""))
		defer w.manager()()
		for i := range 5 {
			w.Until(time.Duration(i) * time.Minute)
			w.Freeze("endpointslices", i == 1 || i == 2)
			w.Put(aPod("a", i+1))
			w.Freeze("services", i >= 1)
			if i == 2 {
				w.Put(versioned(aService("a", func(s *corev1.Service) { s.Spec.Selector = nil })))
			}
		}
		w.Until(6 * time.Minute)
		fakeapi.WantEqual(t, "slices", w.show("a"), []string{"IPv4 web:8080, 10.0.0.2 ready serving, 10.0.0.3 ready serving"})
	})
}

// The process dies after each write, and another process goes on with a fresh or a frozen cache. In these
// cases no pod is ever in two slices.
func TestKilledAfterEachWrite(t *testing.T) {
	writes := []string{"create endpointslices", "update endpointslices", "delete endpointslices"}
	for _, tt := range []struct {
		name             string
		from, to, slices int // pods before and after, and the slices for them
	}{
		{"one update and three creates", 1, 7, 4},
		{"one update and three deletes", 7, 1, 1},
	} {
		for _, frozen := range []bool{false, true} {
			for n := 1; n <= 4; n++ {
				fakeapi.Bubble(t, fmt.Sprintf("%s, frozen %v, write %d", tt.name, frozen, n), func(t *testing.T) {
					w := newWorld(t, crowd(tt.from)...)
					w.cfg.MaxEndpoints, w.cfg.BatchPeriod = 2, time.Second
					first, stopFirst := w.Standby()
					second, stopSecond := w.Standby()
					defer stopSecond()
					end := fakeapi.Term(t, first.Run)
					w.Until(5 * time.Second)
					w.Freeze("endpointslices", frozen)
					before := w.writes()
					w.After(func() {
						w.podsIn("a")
						if w.writes()-before >= n {
							w.Break(errors.New("killed"), writes...)
						}
					})
					for i := tt.from; i < tt.to; i++ {
						w.Put(aPod("a", i))
					}
					for i := tt.to; i < tt.from; i++ {
						w.Remove("pods", "default", fmt.Sprint("a-", i))
					}
					w.change(aPod("a", 0), unready)
					w.Until(7 * time.Second)
					end()
					stopFirst()
					w.After(func() { w.podsIn("a") })
					w.Break(nil, writes...)
					defer fakeapi.Term(t, second.Run)()
					w.Until(time.Minute)
					w.wantPods("a", tt.to)
					fakeapi.Want(t, "slices", len(w.slices("a")), tt.slices)
					fakeapi.Want(t, "unready pod is ready in its slice", strings.Contains(fmt.Sprint(w.show("a")), "10.0.0.1 ready"), false)
				})
			}
		}
	}
}

// A term ends while a sync has writes left, which are left to the next leader.
func TestTermEndsBetweenWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, crowd(7)...)
		w.cfg.MaxEndpoints = 2
		c, stop := w.Standby()
		defer stop()
		ctx, end := context.WithCancel(t.Context())
		w.PrependReactor("create", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) { end(); return false, nil, nil })
		fakeapi.NoError(t, c.Run(ctx))
		fakeapi.Want(t, "writes", w.writes(), 1)
	})
}

// Responses of writes are lost after the writes are done, while the cache shows nothing.
func TestLostResponses(t *testing.T) {
	for _, verb := range []string{"create", "update", "delete"} {
		fakeapi.Bubble(t, verb, func(t *testing.T) {
			w := newWorld(t, crowd(7)...)
			w.cfg.MaxEndpoints = 2
			w.LoseResponse(verb, "endpointslices")
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
			fakeapi.Want(t, "syncs with a lost response", len(fakeapi.NewEvents(w.events)), 1)
			w.wantPods("a", 3)
		})
	}
}

// The response of an update is lost while the watch of slices is frozen. The pod returns to the state that the cached
// slice shows.
func TestLostUpdateOfAnObsoleteState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1, unready))
		defer w.manager()()
		w.Until(5 * time.Second)
		w.Freeze("endpointslices", true)
		lost := w.LoseResponse("update", "endpointslices")
		w.change(aPod("a", 1), func(pod *corev1.Pod) { setReady(pod, corev1.ConditionTrue) })
		w.Until(5100 * time.Millisecond)
		fakeapi.Want(t, "a response was lost", lost.Load(), true)
		w.change(aPod("a", 1), unready)
		w.Until(10 * time.Second)
		fakeapi.WantEqual(t, "slices", w.show("a"), []string{"IPv4 web:8080, 10.0.0.2"})
		reads := w.Count("get services")
		w.Freeze("endpointslices", false)
		w.change(aPod("a", 1), withIPs("10.0.0.9"))
		w.Until(20 * time.Second)
		fakeapi.WantEqual(t, "slices at the end", w.show("a"), []string{"IPv4 web:8080, 10.0.0.9"})
		fakeapi.Want(t, "further live reads", w.Count("get services")-reads, 0)
	})
}

// A create whose response is lost is repeated under the same name, because the API server may execute the first create
// later, or has executed the create and the watch of slices lags.
func TestLostCreateMakesOneSlice(t *testing.T) {
	for _, executed := range []bool{false, true} {
		fakeapi.Bubble(t, fmt.Sprintf("executed %v", executed), func(t *testing.T) {
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
			_, _, err := w.React(first)
			fakeapi.Want(t, "reason that rejects the first create at the end", apierrors.ReasonForError(err), metav1.StatusReasonAlreadyExists)
			fakeapi.WantEqual(t, "slices", w.show("a"), []string{"IPv4 web:8080, 10.0.0.2 ready serving"})
		})
	}
}

// A sync waits while the cache does not show the own writes. After 30 s the slices are read live.
func TestSyncWaitsForOwnWrites(t *testing.T) {
	for verb, edit := range map[string]func(*corev1.Service){
		"update": func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(443) },
		"delete": func(s *corev1.Service) { s.Spec.IPFamilies = s.Spec.IPFamilies[:1] },
	} {
		fakeapi.Bubble(t, verb, func(t *testing.T) {
			w := newWorld(t, aService("a", dualStack), aNode("n1", ""), aPod("a", 1))
			defer w.manager()()
			w.Until(5 * time.Second)
			w.Freeze("endpointslices", true)
			w.Put(versioned(aService("a", dualStack, edit)))
			w.Until(10 * time.Second)
			before := w.writes()
			w.Put(versioned(versioned(aService("a", dualStack)))) // the slices that the cache shows are right again
			w.Until(30 * time.Second)
			fakeapi.Want(t, "writes on an old cache", w.writes()-before, 0)
			w.Until(50 * time.Second)
			fakeapi.WantEqual(t, "slices after the live read", w.show("a"), []string{"IPv4 web:8080, 10.0.0.2 ready serving", "IPv6"})
		})
	}
}

// metric returns the sum of a metric of the library over all labels.
func metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	fakeapi.NoError(t, err)
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
		events := fakeapi.NewEvents(w.events)
		const want = "Warning FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service default/a: "
		if len(events) != len(creates) || !strings.HasPrefix(events[0], want) || !strings.Contains(events[0], "denied by the webhook") {
			t.Errorf("%d events for %d creates, the first %q", len(events), len(creates), events[0])
		}
		w.Break(nil, "create endpointslices")
		w.Until(3*time.Hour + 2*time.Minute)
		w.wantPods("a", 1)
		fakeapi.Want(t, "creates in the metric", metric(t, "changes")-counted, 1)
	})
}

// A pod changes all the time, and a webhook rejects the slices of its Services. Events do not end the back-off.
func TestRejectedSlicesOfAFlappingPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := crowd(100)
		for i := range 20 {
			objects = append(objects, aService(fmt.Sprint("s", i), func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "a"} }))
		}
		w := newWorld(t, objects...)
		defer w.manager()()
		w.Until(10 * time.Second)
		w.Break(apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "", errors.New("denied by the webhook")), "update endpointslices")
		before := w.writes()
		for i := range 100 {
			w.change(aPod("a", 0), withIPs(fmt.Sprint("10.9.9.", i)))
			time.Sleep(50 * time.Millisecond)
		}
		if writes := w.writes() - before; writes > 800 {
			t.Errorf("%d writes in 5 s, want a burst of 200 and 50 per second at most", writes)
		}
	})
}

// Creates in a terminating namespace are rejected, which is no failure.
func TestTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1))
		ending := apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "", errors.New("being terminated"))
		ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		w.Break(ending, "create endpointslices")
		defer w.manager()()
		w.Until(time.Minute)
		fakeapi.Want(t, "creates", w.writes(), 1)
		fakeapi.WantEqual(t, "events", fakeapi.NewEvents(w.events), nil)
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
		fakeapi.Want(t, "a write met a conflict", len(fakeapi.NewEvents(w.events)) > 0, true)
		w.Until(6*time.Second + controller.ConsistencyTimeout + controller.ConsistencyRecheck)
		w.wantPods("a", 2)
	})
}

// While the versions at the start of a term are unknown, each write is decided on live lists. A pod of a missing node
// needs no write.
func TestUnknownBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aService("b"), aNode("n1", ""), aPod("a", 1), aPod("a", 2, func(p *corev1.Pod) { p.Spec.NodeName = "gone" }))
		w.PrependReactor("list", "endpointslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
			all := a.(clienttesting.ListActionImpl).ListOptions.Limit == 1
			return all, nil, map[bool]error{true: apierrors.NewInternalError(errors.New("down"))}[all]
		})
		defer w.manager()()
		w.Until(10 * time.Second)
		w.Put(versioned(aService("a")))
		w.Until(20 * time.Second)
		fakeapi.WantEqual(t, "slices", w.show("a"), []string{"IPv4 web:8080, 10.0.0.2 ready serving"})
		fakeapi.Want(t, "lists of slices, of the cache and of each Service", w.Count("list endpointslices"), 3)
	})
}
