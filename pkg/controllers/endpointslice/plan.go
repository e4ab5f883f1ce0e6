package endpointslice

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// write is a planned write of a slice.
type write struct {
	verb  string // create, update or delete
	slice *discoveryv1.EndpointSlice
}

// term is the state of one term of leadership.
type term struct {
	states   *controller.KeyStates[cache.ObjectName, state]
	baseline controller.Baseline
	tracker  *util.EndpointSliceTracker // generations of the slices that this process wrote or read live
	triggers *util.TriggerTimeTracker
	topology *topologycache.TopologyCache

	planning   sync.Mutex // serializes calls of Reconcile, whose writes do not name their Service
	client     recordingClient
	unsent     *util.EndpointSliceTracker // the library tracks writes that are not sent yet
	reconciler *endpointslice.Reconciler
}

func newTerm(c *Controller) *term {
	t := &term{
		states:  controller.NewKeyStates[cache.ObjectName](func() *state { return &state{} }),
		tracker: util.NewEndpointSliceTracker(), triggers: util.NewTriggerTimeTracker(), topology: topologycache.NewTopologyCache(),
		unsent: util.NewEndpointSliceTracker(),
	}
	t.reconciler = endpointslice.NewReconciler(&t.client, c.nodes.Lister(), c.cfg.MaxEndpoints, t.unsent, t.topology, c.recorder, managedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(c.Enabled(PreferSameTrafficDistribution)))
	return t
}

// forget drops the state of a Service that is gone.
func (t *term) forget(service cache.ObjectName) {
	t.triggers.DeleteService(service.Namespace, service.Name)
	t.reconciler.DeleteService(service.Namespace, service.Name)
	t.tracker.DeleteService(service.Namespace, service.Name)
	t.states.Delete(service)
}

// plan returns the writes that make the slices of a Service equal to its pods. The error is about pods whose node is
// missing; the plan leaves these pods out.
func (t *term) plan(ctx context.Context, service *corev1.Service, pods []*corev1.Pod, existing []*discoveryv1.EndpointSlice, trigger time.Time) ([]write, error) {
	t.planning.Lock()
	defer t.planning.Unlock()
	t.client.existing, t.client.writes = existing, nil
	err := t.reconciler.Reconcile(libraryLogger(ctx), service, pods, existing, trigger)
	t.unsent.DeleteService(service.Namespace, service.Name)
	return t.client.writes, err
}

// libraryLogger returns a logger for the library, which logs details at the level of events.
func libraryLogger(ctx context.Context) klog.Logger { return klog.FromContext(ctx).V(2) }

// recordingClient records the writes of the library, which calls its client with context.TODO. The controller sends
// the writes with the context of the sync. Other methods panic.
type recordingClient struct {
	kubernetes.Interface
	discoveryclient.DiscoveryV1Interface
	discoveryclient.EndpointSliceInterface

	existing []*discoveryv1.EndpointSlice
	writes   []write
}

func (r *recordingClient) DiscoveryV1() discoveryclient.DiscoveryV1Interface { return r }

func (r *recordingClient) EndpointSlices(string) discoveryclient.EndpointSliceInterface { return r }

func (r *recordingClient) Create(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	r.writes = append(r.writes, write{"create", slice})
	return slice, nil
}

func (r *recordingClient) Update(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	r.writes = append(r.writes, write{"update", slice})
	return slice, nil
}

func (r *recordingClient) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	i := slices.IndexFunc(r.existing, func(slice *discoveryv1.EndpointSlice) bool { return slice.Name == name })
	r.writes = append(r.writes, write{"delete", r.existing[i]})
	return nil
}

// libraryPods returns the selected pods with the fields that the library reads. Labels, addresses and ports are
// shared with the cache.
func libraryPods(service *corev1.Service, pods []*caches.Pod) []*corev1.Pod {
	var selected []*corev1.Pod
	for _, pod := range pods {
		if !labels.ValidatedSetSelector(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			continue
		}
		out := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Status: corev1.PodStatus{Phase: pod.Phase, PodIPs: pod.Endpoint.IPs}, Spec: corev1.PodSpec{
			NodeName: pod.NodeName, Hostname: pod.Endpoint.Hostname, Subdomain: pod.Endpoint.Subdomain, Containers: pod.Endpoint.Containers,
		}}
		if pod.Ready.Status != "" {
			out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: pod.Ready.Status, LastTransitionTime: pod.Ready.Since}}
		}
		selected = append(selected, out)
	}
	return selected
}
