package endpointslice

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"minikcm/internal/fakeapi"
	"minikcm/internal/fakeapi/fakemanager"
	"minikcm/internal/faket"
)

var sliceResource = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

// world is a cluster of fakes in a bubble of fake time.
type world struct {
	fakemanager.World
	cfg    Config
	events *record.FakeRecorder
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{World: fakemanager.World{Clientset: fakeapi.NewClientset(t, objects...), T: t}, cfg: *DefaultConfig(), events: record.NewFakeRecorder(10_000)}
	w.Recorder, w.Registration = w.events, Registration(&w.cfg)
	w.SetListVersions("endpointslices")
	w.PrependReactor("update", "endpointslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		slice := a.(clienttesting.UpdateAction).GetObject().(*discoveryv1.EndpointSlice)
		if old := w.slice(slice.Namespace, slice.Name); old != nil {
			slice.UID, slice.Generation, slice.ResourceVersion = old.UID, old.Generation, cmp.Or(slice.ResourceVersion, old.ResourceVersion)
			if !apiequality.Semantic.DeepEqual(old.Endpoints, slice.Endpoints) || !apiequality.Semantic.DeepEqual(old.Ports, slice.Ports) {
				slice.Generation++
			}
		}
		return false, nil, nil
	})
	return w
}

// manager starts caches, controller and a term. stop ends all three.
func (w *world) manager() (stop func()) {
	w.T.Helper()
	_, stop = w.Manager()
	return stop
}

// writes returns the accepted and rejected writes of slices.
func (w *world) writes() (n int) {
	for _, verb := range []string{"create", "update", "delete"} {
		n += w.Count(verb + " endpointslices ")
	}
	return n
}

func (w *world) syncs() uint64 { return fakeapi.Syncs(w.T, w.Metrics, queueName) }

// slices returns the managed slices of a Service of namespace default by name; without a name all slices.
func (w *world) slices(service string) []discoveryv1.EndpointSlice {
	w.T.Helper()
	list, err := w.Tracker().List(sliceResource, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "")
	fakeapi.NoError(w.T, err)
	found := slices.DeleteFunc(list.(*discoveryv1.EndpointSliceList).Items, func(s discoveryv1.EndpointSlice) bool {
		return service != "" && (s.Labels[discoveryv1.LabelServiceName] != service || s.Labels[discoveryv1.LabelManagedBy] != managedBy)
	})
	slices.SortFunc(found, func(a, b discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

func (w *world) slice(namespace, name string) *discoveryv1.EndpointSlice {
	obj, err := w.Tracker().Get(sliceResource, namespace, name)
	if err != nil {
		return nil
	}
	return obj.(*discoveryv1.EndpointSlice).DeepCopy()
}

// only returns the slice of a Service that has a single slice.
func (w *world) only(service string) *discoveryv1.EndpointSlice {
	w.T.Helper()
	found := w.slices(service)
	if len(found) != 1 {
		w.T.Fatalf("service %s has %d slices, want one", service, len(found))
	}
	return &found[0]
}

// show returns the slices of a Service in short: "IPv4 web:8080, 10.0.0.2 ready serving, …".
func (w *world) show(service string) []string {
	w.T.Helper()
	out := []string{}
	for _, slice := range w.slices(service) {
		text := string(slice.AddressType)
		for _, p := range slice.Ports {
			text += fmt.Sprintf(" %s:%d", *p.Name, *p.Port)
		}
		var endpoints []string
		for _, e := range slice.Endpoints {
			endpoint := e.Addresses[0]
			for _, part := range []struct {
				show bool
				text string
			}{
				{*e.Conditions.Ready, "ready"}, {*e.Conditions.Serving, "serving"}, {*e.Conditions.Terminating, "terminating"},
				{e.Hostname != nil, "host " + ptr.Deref(e.Hostname, "")}, {e.Zone != nil, "zone " + ptr.Deref(e.Zone, "")},
			} {
				if part.show {
					endpoint += " " + part.text
				}
			}
			endpoints = append(endpoints, endpoint)
		}
		slices.Sort(endpoints)
		for _, e := range endpoints {
			text += ", " + e
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// aService selects app=NAME, with one named port 80 to the port named http of its pods.
func aService(name string, edits ...func(*corev1.Service)) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0)),
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromString("http"), Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, edit := range edits {
		edit(service)
	}
	return service
}

// aPod is a ready pod of app=APP on node n1 with an address and the port http.
func aPod(app string, number int, edits ...func(*corev1.Pod)) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", app, number)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Labels: map[string]string{"app": app},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", number/250, number%250+1)}}},
	}
	setReady(pod, corev1.ConditionTrue)
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now())}}
}

func unready(pod *corev1.Pod) { setReady(pod, corev1.ConditionFalse) }

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }

func withIPs(ips ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.PodIPs = nil
		for _, ip := range ips {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

// aNode is a ready node with a CPU; zone may be empty.
func aNode(name, zone string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}}}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone] = zone
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return node
}

// versioned gives an object a higher resourceVersion, as every write does.
func versioned[T metav1.Object](obj T) T {
	n, _ := strconv.Atoi(obj.GetResourceVersion())
	obj.SetResourceVersion(strconv.Itoa(n + 1))
	return obj
}

// change replaces a pod by an edited one.
func (w *world) change(pod *corev1.Pod, edits ...func(*corev1.Pod)) {
	w.T.Helper()
	pod = versioned(w.Pod(pod.Name))
	for _, edit := range edits {
		edit(pod)
	}
	w.Put(pod)
}

func TestMain(m *testing.M) { faket.Main(m) }
