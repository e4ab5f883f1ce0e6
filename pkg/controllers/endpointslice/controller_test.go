package endpointslice

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
)

// Pod events by the Services that the events sync.
func TestPodEventsThatMatter(t *testing.T) {
	other := aService("b", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"also": "this"} })
	elsewhere := aService("a", func(s *corev1.Service) { s.Namespace = "elsewhere" })
	both := aService("c", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "a", "tier": "web"} })
	for _, tt := range []struct {
		name string
		edit func(*corev1.Pod)
		want uint64 // syncs
	}{
		{"annotation, another condition and restart", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"x": "y"}
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}}
		}, 0},
		{"a label that no selector has", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "a", "x": "y"} }, 0},
		{"another pod of the same name", func(p *corev1.Pod) { p.UID = "another" }, 1},
		{"host name", func(p *corev1.Pod) { p.Spec.Hostname = "one" }, 1},
		{"subdomain", func(p *corev1.Pod) { p.Spec.Subdomain = "one" }, 1},
		{"node", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, 1},
		{"another Service too", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "a", "also": "this"} }, 1},
		{"one label of two", func(p *corev1.Pod) { p.Labels = map[string]string{"tier": "web", "app": "none"} }, 1},
		{"both labels of two", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "a", "tier": "web"} }, 1},
		{"another Service too, and unready", func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": "a", "also": "this"}
			unready(p)
		}, 2},
		{"another Service instead", func(p *corev1.Pod) { p.Labels = map[string]string{"also": "this"} }, 2},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld(t, aService("a"), other.DeepCopy(), elsewhere.DeepCopy(), both.DeepCopy(), aNode("n1", ""), aPod("a", 1))
			defer w.manager()()
			w.Until(10 * time.Second)
			before := w.syncs()
			w.change(aPod("a", 1), tt.edit)
			w.Until(10*time.Second + gatherDelay/2) // the event of a write may arrive before its response
			fakeapi.Want(t, "syncs", w.syncs()-before, tt.want)
		})
	}
}

// Changes of pods within the batch period are written together, and quick changes of many pods. Upstream:
// TestPodAddsBatching and so on.
func TestBatchPeriod(t *testing.T) {
	changes := map[string]func(*world, int){
		"slices": func(w *world, _ int) {
			for _, slice := range w.slices("a") {
				w.deleteSlice(&slice)
			}
		},
		"add":    func(w *world, i int) { w.Put(aPod("a", 1000+i)) },
		"update": func(w *world, i int) { w.change(aPod("a", i), unready) },
		"delete": func(w *world, i int) { w.Remove("pods", "default", fmt.Sprint("a-", i)) },
	}
	for name, change := range changes {
		for _, tt := range []struct {
			period        time.Duration
			pods          int
			pause         time.Duration
			want, bySlice int
		}{
			{0, 4, 3 * time.Second, 3, 3}, {10 * time.Second, 4, 3 * time.Second, 1, 1}, {4 * time.Second, 4, 3 * time.Second, 2, 2},
			{0, 4, 10 * time.Millisecond, 3, 1}, {0, 100, 5 * time.Millisecond, 2, 1}, {0, 1000, 60 * time.Millisecond, 3, 1},
		} {
			fakeapi.Bubble(t, fmt.Sprintf("%s %+v", name, tt), func(t *testing.T) {
				w := newWorld(t, crowd(tt.pods)...)
				w.cfg.BatchPeriod, w.cfg.MaxEndpoints = tt.period, 1000
				defer w.manager()()
				w.Until(time.Minute)
				before := w.writes()
				for i := range 3 {
					change(w, i)
					time.Sleep(tt.pause)
				}
				w.Until(2 * time.Minute)
				want := map[bool]int{false: tt.want, true: tt.bySlice}[name == "slices"]
				fakeapi.Want(t, "writes", w.writes()-before, want)
			})
		}
	}
}

// zoned is Service a with a pod in each of two zones.
func zoned(edit func(*corev1.Service)) []runtime.Object {
	objects := []runtime.Object{aService("a", edit)}
	for i, zone := range []string{"east", "west"} {
		objects = append(objects, aNode(zone, zone), aPod("a", i, func(p *corev1.Pod) { p.Spec.NodeName = zone }))
	}
	return objects
}

func automatic(s *corev1.Service) {
	s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto", "other": "large"}
}

func preferring(distribution string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.TrafficDistribution = &distribution }
}

// hints returns the hints of each endpoint by its pod.
func (w *world) hints(service string) map[string]string {
	out := map[string]string{}
	for _, slice := range w.slices(service) {
		for _, e := range slice.Endpoints {
			text := ""
			if e.Hints != nil {
				for _, zone := range e.Hints.ForZones {
					text += "zone " + zone.Name
				}
				for _, node := range e.Hints.ForNodes {
					text += " node " + node.Name
				}
			}
			out[e.TargetRef.Name] = text
		}
	}
	return out
}

// An event of a pod reads few Services, even if all Services share a label.
func TestIndexBySelector(t *testing.T) {
	service := aService("a")
	service.Spec.Selector = map[string]string{"app": "web", "statefulset.kubernetes.io/pod-name": "web-0"}
	fakeapi.WantEqual(t, "index", fakeapi.Must(indexBySelector(service)), []string{"default/statefulset.kubernetes.io/pod-name=web-0"})
}

func TestLibraryPodsShareLabels(t *testing.T) {
	pod := &caches.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Endpoint: &caches.Endpoint{}}
	libraryPods(aService("a"), []*caches.Pod{pod})[0].Labels["app"] = "shared"
	fakeapi.Want(t, "label", pod.Labels["app"], "shared")
}

// Hints follow the spec of the Service. A take-over writes nothing, and reads only the baseline.
func TestHints(t *testing.T) {
	zones := map[string]string{"a-0": "zone east", "a-1": "zone west"}
	for _, tt := range []struct {
		name string
		edit func(*corev1.Service)
		want map[string]string
	}{
		{"none", func(*corev1.Service) {}, map[string]string{"a-0": "", "a-1": ""}},
		{"topology mode", automatic, zones},
		{"PreferClose", preferring(corev1.ServiceTrafficDistributionPreferClose), zones},
		{"PreferSameZone", preferring(corev1.ServiceTrafficDistributionPreferSameZone), zones},
		{"PreferSameNode", preferring(corev1.ServiceTrafficDistributionPreferSameNode),
			map[string]string{"a-0": "zone east node east", "a-1": "zone west node west"}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld(t, zoned(tt.edit)...)
			w.manager()()
			fakeapi.WantEqual(t, "hints", w.hints("a"), tt.want)
			before, lists, gets := w.writes(), w.Count("list endpointslices"), w.Count("get services")
			defer w.manager()()
			w.Until(time.Minute)
			fakeapi.Want(t, "writes of the next term", w.writes()-before, 0)
			fakeapi.Want(t, "lists of slices, of the cache and of the baseline", w.Count("list endpointslices")-lists, 2)
			fakeapi.Want(t, "live reads of the Service", w.Count("get services")-gets, 0)
		})
	}
}

// The loop of nodes runs once per second at most, and changes hints. A Service is synced if its endpoints
// are out of balance with the nodes. Upstream: TestUpdateNode, Test_checkNodeTopologyDistribution.
func TestNodesChangeHints(t *testing.T) {
	west := func(edit func(*corev1.Node)) func(*world) {
		return func(w *world) {
			node := versioned(aNode("west", "west"))
			edit(node)
			w.Put(node)
		}
	}
	east, none := map[string]string{"a-0": "zone east", "a-1": "zone west"}, map[string]string{"a-0": "", "a-1": ""}
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   uint64 // refreshes
		hints  map[string]string
	}{
		{"heartbeat", west(func(*corev1.Node) {}), 0, east},
		{"another zone", west(func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "north" }), 1, map[string]string{"a-0": "zone east", "a-1": "zone north"}},
		{"unready", west(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }), 1, none},
		{"50 nodes of equal zones", func(w *world) {
			for i := range 50 {
				w.Put(aNode(fmt.Sprint("extra", i), []string{"east", "west"}[i%2]))
				time.Sleep(10 * time.Millisecond)
			}
		}, 1, east},
		{"deletion and return in another zone", func(w *world) {
			w.Remove("nodes", "", "west")
			time.Sleep(1500 * time.Millisecond)
			w.Put(aNode("west", "north")) // syncs the Service at once
		}, 1, map[string]string{"a-0": "zone east", "a-1": "zone north"}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld(t, zoned(automatic)...)
			defer w.manager()()
			w.Until(10 * time.Second)
			queue := queueName + "_nodes"
			before, syncs := fakeapi.Syncs(t, w.Metrics, queue), w.syncs()
			tt.change(w)
			w.Until(11*time.Second + time.Millisecond)
			fakeapi.Want(t, "refreshes", fakeapi.Syncs(t, w.Metrics, queue)-before, tt.want)
			w.Until(20 * time.Second)
			fakeapi.Want(t, "the Service is synced", w.syncs() > syncs, !maps.Equal(tt.hints, east))
			fakeapi.WantEqual(t, "hints", w.hints("a"), tt.hints)
		})
	}
}

func TestDeletedServiceIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, append(zoned(automatic), aService("b"))...)
		c, stop := w.Standby()
		defer stop()
		defer fakeapi.Term(t, c.Run)()
		w.Until(time.Second)
		before := w.writes()
		w.Remove("services", "default", "a")
		synctest.Wait()
		w.Remove("pods", "default", "a-1")
		w.Until(time.Minute)
		fakeapi.Want(t, "writes, although the slices belong to the garbage collector", w.writes()-before, 0)
		term := c.(*Controller).term.Load()
		for name, got := range map[string]int{
			"states": term.states.Len(), "trigger times": len(term.triggers.ServiceStates), "slices in metrics": int(metric(t, "num_endpoint_slices")),
		} {
			fakeapi.Want(t, name+", of the other Service", got, 1)
		}
		fakeapi.Want(t, "the term knows slices or hints of the Service", term.tracker.Has(w.only("a")) || term.topology.HasPopulatedHints("default/a"), false)
	})
}

// Trimmed objects are trimmed again, because client-go passes the objects of streaming lists twice.
func TestTrim(t *testing.T) {
	slice := func(manager string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: "s", UID: "u", Labels: map[string]string{discoveryv1.LabelManagedBy: manager, discoveryv1.LabelServiceName: "a"}, Annotations: map[string]string{"x": "y"},
				Finalizers: []string{"f"}, OwnerReferences: []metav1.OwnerReference{{UID: "owner"}},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("web")}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: new("n1"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "p"}}},
		}
	}
	twice := func(trim func(any) (any, error), obj metav1.Object) any {
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		return fakeapi.Must(trim(fakeapi.Must(trim(obj))))
	}
	service, trimmed := aService("a", automatic), aService("a", automatic)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "1.2.3.4"}}
	delete(trimmed.Annotations, "other")
	service.Labels, trimmed.Labels = map[string]string{"x": "y"}, map[string]string{"x": "y"}
	managed, foreign := twice(caches.Trim(trimSlice), slice(managedBy)).(*EndpointSlice), twice(caches.Trim(trimSlice), slice("another")).(*EndpointSlice)
	for _, tt := range []struct{ got, want any }{
		{managed.decode(), slice(managedBy)}, {*foreign, EndpointSlice{ObjectMeta: slice("another").ObjectMeta}}, {twice(caches.Trim(trimService), service), trimmed},
	} {
		fakeapi.WantEqual(t, "trimmed", tt.got, tt.want, cmp.AllowUnexported(EndpointSlice{}))
	}
}
