package endpointslice

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"minikcm/internal/fakeapi"
)

func headless(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }

func dualStack(s *corev1.Service) {
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

func named(port string, number int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: port, ContainerPort: number, Protocol: corev1.ProtocolTCP}}
	}
}

func sidecar(policy corev1.ContainerRestartPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = pod.Spec.Containers
		pod.Spec.InitContainers[0].RestartPolicy = &policy
		pod.Spec.Containers = []corev1.Container{{Name: "plain"}}
	}
}

// The slices of one Service by its pods, as in kube-controller-manager.
func TestSlicesFollowServiceAndPods(t *testing.T) {
	for _, tt := range []struct {
		name    string
		service *corev1.Service
		pods    []*corev1.Pod
		want    []string
	}{
		{"ready pod", aService("a"), []*corev1.Pod{aPod("a", 1)}, []string{"IPv4 web:8080, 10.0.0.2 ready serving"}},
		{"pod with one label of two", aService("a", func(s *corev1.Service) { s.Spec.Selector["tier"] = "web" }),
			[]*corev1.Pod{aPod("b", 1, func(p *corev1.Pod) { p.Labels["tier"] = "web" })}, []string{"IPv4"}},
		{"unready pod is published", aService("a", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			[]*corev1.Pod{aPod("a", 1, unready)}, []string{"IPv4 web:8080, 10.0.0.2 ready"}},
		{"terminating pods", aService("a"), []*corev1.Pod{aPod("a", 1, terminating), aPod("a", 2, terminating, unready)},
			[]string{"IPv4 web:8080, 10.0.0.2 serving terminating, 10.0.0.3 terminating"}},
		{"finished pods", aService("a"), []*corev1.Pod{
			aPod("a", 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), aPod("a", 2, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		}, []string{"IPv4"}},
		{"pod without address", aService("a"), []*corev1.Pod{aPod("a", 1, withIPs())}, []string{"IPv4"}},
		{"pods with the same address", aService("a"), []*corev1.Pod{aPod("a", 1), aPod("a", 2, withIPs("10.0.0.2"))},
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving, 10.0.0.2 ready serving"}},
		{"dual stack", aService("a", dualStack), []*corev1.Pod{aPod("a", 1, withIPs("10.0.0.2", "fd00::2"))},
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving", "IPv6 web:8080, fd00::2 ready serving"}},
		{"named port that differs", aService("a"), []*corev1.Pod{aPod("a", 1), aPod("a", 2, named("http", 9090))},
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving", "IPv4 web:9090, 10.0.0.3 ready serving"}},
		{"named port that no pod has", aService("a"), []*corev1.Pod{aPod("a", 1, named("other", 1))}, []string{"IPv4, 10.0.0.2 ready serving"}},
		{"named port of a sidecar", aService("a"), []*corev1.Pod{aPod("a", 1, sidecar(corev1.ContainerRestartPolicyAlways))},
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving"}},
		{"named port of an init container", aService("a"), []*corev1.Pod{aPod("a", 1, sidecar(corev1.ContainerRestartPolicyNever))},
			[]string{"IPv4, 10.0.0.2 ready serving"}},
		{"headless without ports", aService("a", headless, func(s *corev1.Service) { s.Spec.Ports = nil }),
			[]*corev1.Pod{aPod("a", 1)}, []string{"IPv4, 10.0.0.2 ready serving"}},
		{"host names", aService("a", headless), []*corev1.Pod{
			aPod("a", 1, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "one", "a" }),
			aPod("a", 2, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "two", "b" }),
		}, []string{"IPv4 web:8080, 10.0.0.2 ready serving host one, 10.0.0.3 ready serving"}},
		{"node with a zone", aService("a"), []*corev1.Pod{aPod("a", 1, func(p *corev1.Pod) { p.Spec.NodeName = "n2" })},
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving zone east"}},
		{"missing node", aService("a"), []*corev1.Pod{aPod("a", 1), aPod("a", 2, func(p *corev1.Pod) { p.Spec.NodeName = "gone" })},
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving"}},
		{"ExternalName", aService("a", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), []*corev1.Pod{aPod("a", 1)}, []string{}},
		{"no selector", aService("a", func(s *corev1.Service) { s.Spec.Selector = nil }), []*corev1.Pod{aPod("a", 1)}, []string{}},
		{"being deleted", aService("a", func(s *corev1.Service) { s.DeletionTimestamp = &s.CreationTimestamp }), []*corev1.Pod{aPod("a", 1)}, []string{}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld(t, tt.service, aNode("n1", ""), aNode("n2", "east"))
			for _, pod := range tt.pods {
				w.Put(pod)
			}
			defer w.manager()()
			w.Until(time.Minute)
			fakeapi.WantEqual(t, "slices", w.show("a"), tt.want)
		})
	}
}

// The slices after a change, of a leader that wrote all slices and of a leader that has written none.
func TestSlicesFollowChanges(t *testing.T) {
	pods := []*corev1.Pod{aPod("a", 1), aPod("a", 2)}
	const before = "IPv4 web:8080, 10.0.0.2 ready serving, 10.0.0.3 ready serving"
	service := func(edits ...func(*corev1.Service)) func(*world) {
		return func(w *world) { w.Put(versioned(aService("a", edits...))) }
	}
	another := func(edit func(*discoveryv1.EndpointSlice)) func(*world) {
		return func(w *world) {
			slice := w.only("a")
			slice.Name, slice.UID = "another", "another"
			edit(slice)
			w.Put(slice)
		}
	}
	edited := func(edit func(*discoveryv1.EndpointSlice)) func(*world) {
		return func(w *world) {
			slice := versioned(w.only("a"))
			edit(slice)
			w.Put(slice)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*world)
		within time.Duration
		want   []string
	}{
		{"pod becomes unready", func(w *world) { w.change(pods[0], unready) }, 0, []string{"IPv4 web:8080, 10.0.0.2, 10.0.0.3 ready serving"}},
		{"pod is deleted", func(w *world) { w.Remove("pods", "default", "a-1") }, 0, []string{"IPv4 web:8080, 10.0.0.3 ready serving"}},
		{"pod terminates", func(w *world) { w.change(pods[0], terminating) }, 0,
			[]string{"IPv4 web:8080, 10.0.0.2 serving terminating, 10.0.0.3 ready serving"}},
		{"pod finishes", func(w *world) { w.change(pods[0], func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }) }, 0,
			[]string{"IPv4 web:8080, 10.0.0.3 ready serving"}},
		{"pod gets another address", func(w *world) { w.change(pods[0], withIPs("10.9.9.9")) }, 0,
			[]string{"IPv4 web:8080, 10.0.0.3 ready serving, 10.9.9.9 ready serving"}},
		{"pod leaves", func(w *world) { w.change(pods[0], func(p *corev1.Pod) { p.Labels = map[string]string{"app": "c"} }) }, 0,
			[]string{"IPv4 web:8080, 10.0.0.3 ready serving"}},
		{"pod comes", func(w *world) { w.Put(aPod("a", 3)) }, 0,
			[]string{"IPv4 web:8080, 10.0.0.2 ready serving, 10.0.0.3 ready serving, 10.0.0.4 ready serving"}},
		{"selector changes", service(func(s *corev1.Service) { s.Spec.Selector["app"] = "b" }), 0, []string{"IPv4"}},
		{"port changes", service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) }), 0,
			[]string{"IPv4 web:1, 10.0.0.2 ready serving, 10.0.0.3 ready serving"}},
		{"family is added", service(dualStack), 0, []string{before, "IPv6"}},
		{"family changes", service(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }), 0, []string{"IPv6"}},
		{"Service becomes ExternalName and keeps its slices", service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), 0, []string{before}},
		{"Service loses its selector and keeps its slices", service(func(s *corev1.Service) { s.Spec.Selector = nil }), 0, []string{before}},
		{"Service is created again", service(func(s *corev1.Service) { s.UID = "another" }), 0, []string{before}},
		{"slice is deleted by hand", func(w *world) { w.deleteSlice(w.only("a")) }, gatherDelay, []string{before}},
		{"slice is edited by hand", edited(func(slice *discoveryv1.EndpointSlice) {
			slice.Endpoints, slice.Generation = slice.Endpoints[:1], slice.Generation+1
		}), gatherDelay, []string{before}},
		{"slice goes to another Service", edited(func(slice *discoveryv1.EndpointSlice) { slice.Labels[discoveryv1.LabelServiceName] = "b" }), gatherDelay, []string{before}},
		{"slice goes to another manager", edited(func(slice *discoveryv1.EndpointSlice) { slice.Labels[discoveryv1.LabelManagedBy] = "another" }), gatherDelay, []string{before}},
		{"slice with a finalizer is deleted", edited(func(slice *discoveryv1.EndpointSlice) {
			slice.Finalizers, slice.DeletionTimestamp, slice.Generation = []string{"example.com/hold"}, new(slice.CreationTimestamp), slice.Generation+1
		}), gatherDelay, []string{before, before}},
		{"foreign slice appears", another(func(slice *discoveryv1.EndpointSlice) { slice.Labels[discoveryv1.LabelManagedBy] = "another" }), 0, []string{before}},
		{"second slice appears and goes", another(func(*discoveryv1.EndpointSlice) {}), gatherDelay, []string{before}},
		{"empty slice appears and goes", another(func(slice *discoveryv1.EndpointSlice) { slice.Endpoints, slice.Ports = nil, nil }), gatherDelay, []string{before}},
		{"Service is an ExternalName for a time", func(w *world) {
			service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName })(w)
			w.Remove("pods", "default", "a-1")
			time.Sleep(time.Second)
			w.Put(versioned(versioned(aService("a"))))
		}, time.Second, []string{"IPv4 web:8080, 10.0.0.3 ready serving"}},
		{"foreign slice becomes ours and goes", func(w *world) {
			another(func(slice *discoveryv1.EndpointSlice) {
				slice.OwnerReferences, slice.Labels[discoveryv1.LabelManagedBy] = nil, "another"
			})(w)
			synctest.Wait()
			slice := versioned(w.slice("default", "another"))
			slice.Labels[discoveryv1.LabelManagedBy] = managedBy
			w.Put(slice)
		}, gatherDelay, []string{before}},
	} {
		for _, takeOver := range []bool{false, true} {
			fakeapi.Bubble(t, fmt.Sprint(tt.name, ", take-over ", takeOver), func(t *testing.T) {
				w := newWorld(t, aService("a"), aService("b"), aNode("n1", ""), pods[0].DeepCopy(), pods[1].DeepCopy())
				if takeOver {
					w.manager()()
				}
				defer w.manager()()
				w.Until(10 * time.Second)
				fakeapi.WantEqual(t, "slices at rest", w.show("a"), []string{before})
				tt.change(w)
				w.Until(10*time.Second + tt.within)
				fakeapi.WantEqual(t, "slices", w.show("a"), tt.want)
				fakeapi.WantEqual(t, "slices of the other Service", w.show("b"), []string{"IPv4"})
				fakeapi.WantEqual(t, "events", fakeapi.NewEvents(w.events), nil)
			})
		}
	}
}

func (w *world) deleteSlice(slice *discoveryv1.EndpointSlice) {
	w.T.Helper()
	fakeapi.NoError(w.T, w.Tracker().Delete(sliceResource, slice.Namespace, slice.Name))
}

// The annotation has the time of the change of the pod.
func TestTriggerTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aService("a"), aNode("n1", ""), aPod("a", 1))
		defer w.manager()()
		w.Until(10 * time.Second)
		w.change(aPod("a", 1), unready)
		at := time.Now().UTC().Format(time.RFC3339Nano)
		w.Until(20 * time.Second)
		fakeapi.Want(t, "annotation", w.only("a").Annotations[corev1.EndpointsLastChangeTriggerTime], at)
	})
}
