package endpointslice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	endpointslicemetrics "k8s.io/endpointslice/metrics"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/nodestatus"
)

// Names of upstream, kube-controller-manager v1.37.
const (
	Name        = "endpointslice-controller"
	queueName   = "endpoint_slice"
	eventSource = "endpoint-slice-controller"
	managedBy   = "endpointslice-controller.k8s.io"
)

const (
	minBackoff = time.Second // upstream's; of a failing Service
	// sliceDelay is upstream's delay of the sync after an unexpected change of a slice.
	sliceDelay = time.Second
	// nodeDelay is the delay in which events of nodes share one refresh of the topology.
	nodeDelay = time.Second
	allNodes  = "nodes" // the only key of the loop of nodes
)

// Controller keeps the EndpointSlices of Services.
type Controller struct {
	cfg      Config
	client   kubernetes.Interface // fenced
	recorder record.EventRecorder
	clock    clock.WithTicker
	// preferSame is the value of PreferSameTrafficDistribution.
	preferSame bool

	services  caches.Store[*corev1.Service]
	slices    caches.Store[*EndpointSlice]
	pods      *caches.Pods
	nodes     *caches.Nodes
	selectors *selectorIndex

	loop     *controller.Loop[cache.ObjectName] // of Services
	nodeLoop *controller.Loop[string]
	term     atomic.Pointer[term] // nil outside of a term
}

// term is the state of one term of leadership.
type term struct {
	reconciler *endpointslice.Reconciler
	tracker    *util.EndpointSliceTracker // generations of the slices that this process wrote or read live
	triggers   *util.TriggerTimeTracker
	topology   *topologycache.TopologyCache
	writer     *writer
	baseline   controller.Baseline
	pods       controller.Baseline
	states     *controller.KeyStates[cache.ObjectName, state]
}

func newController(cfg Config, b controller.Base) (*Controller, error) {
	c := &Controller{
		cfg: cfg, client: b.Client, recorder: b.Recorder(eventSource), clock: b.Clock,
		preferSame: b.Enabled(PreferSameTrafficDistribution), selectors: newSelectorIndex(),
	}
	if _, ownProcess := b.Metrics.(controller.QueueMetrics); ownProcess {
		endpointslicemetrics.RegisterMetrics()
	}
	if err := c.openCaches(b.Caches); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	if err := c.registerHandlers(); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	loop := controller.LoopConfig{Controller: Name, Queue: queueName, Workers: int(cfg.Workers), MinBackoff: minBackoff, Drain: b.Drain, Clock: b.Clock}
	c.loop = controller.NewLoop(loop, b.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	loop.Queue, loop.Workers = queueName+"_nodes", 1
	c.nodeLoop = controller.NewLoop(loop, b.Metrics, c.reconcileNodes)
	return c, nil
}

func (c *Controller) openCaches(from *caches.Caches) error {
	var errs [4]error
	c.pods, errs[0] = from.Pods()
	c.nodes, errs[1] = from.Nodes()
	c.services, errs[2] = caches.Watch[*corev1.Service](from, corev1.SchemeGroupVersion.WithResource("services"), caches.Options{
		Trim: trimService,
		Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Services().Informer()
		},
	})
	c.slices, errs[3] = caches.Watch[*EndpointSlice](from, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), caches.Options{
		Trim: trimSlice, Indexers: cache.Indexers{byService: indexByService},
		Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Discovery().V1().EndpointSlices().Informer()
		},
	})
	return errors.Join(errs[:]...)
}

func (c *Controller) registerHandlers() error {
	services := func(index func(*corev1.Service)) func(*corev1.Service) {
		return func(service *corev1.Service) {
			index(service)
			c.loop.Add(cache.MetaObjectToName(service))
		}
	}
	changed := services(c.selectors.set)
	return errors.Join(
		c.services.Handle(caches.Handler[*corev1.Service]{
			Add: changed, Update: func(_, service *corev1.Service) { changed(service) }, Delete: services(c.selectors.remove),
		}),
		c.pods.Handle(caches.Handler[*caches.Pod]{Add: c.podChanged, Update: c.podUpdated, Delete: c.podChanged}),
		c.slices.Handle(caches.Handler[*EndpointSlice]{Add: c.sliceChanged, Update: c.sliceUpdated, Delete: c.sliceDeleted}),
		c.nodes.Handle(caches.Handler[*corev1.Node]{Add: c.nodeAdded, Update: c.nodeUpdated, Delete: c.nodeChanged}),
	)
}

func (c *Controller) podChanged(pod *caches.Pod) {
	if c.term.Load() != nil {
		c.enqueuePodServices(c.selectors.servicesFor(pod.Namespace, pod.Labels))
	}
}

// podUpdated adds the Services that select the old or the new pod. If only labels changed, Services that
// select both are left out.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	if c.term.Load() == nil {
		return
	}
	changed, relabelled := endpointChanged(old, pod), !maps.Equal(old.Labels, pod.Labels)
	if !changed && !relabelled {
		return
	}
	services := c.selectors.servicesFor(pod.Namespace, pod.Labels)
	if relabelled {
		for service := range c.selectors.servicesFor(old.Namespace, old.Labels) {
			if services[service] && !changed {
				delete(services, service)
			} else {
				services[service] = true
			}
		}
	}
	c.enqueuePodServices(services)
}

func (c *Controller) enqueuePodServices(services map[cache.ObjectName]bool) {
	for service := range services {
		c.loop.AddAfter(service, c.cfg.BatchPeriod)
	}
}

// sliceChanged adds the Service of a slice that this process has not written, or not like this.
func (c *Controller) sliceChanged(slice *EndpointSlice) {
	t := c.term.Load()
	switch {
	case t == nil || !isManaged(slice):
	case slice.DeletionTimestamp != nil:
		c.sliceDeleted(slice) // finalizers may hold the slice for long
	case t.tracker.ShouldSync(slice.withoutContent()):
		c.enqueueSliceService(slice)
	}
}

// sliceUpdated adds the Services that lose or gain a slice by a changed label.
func (c *Controller) sliceUpdated(old, slice *EndpointSlice) {
	t := c.term.Load()
	if t != nil && old.UID != slice.UID { // replaced between two lists
		c.sliceDeleted(old)
	}
	if t == nil || serviceOf(old) == serviceOf(slice) && isManaged(old) == isManaged(slice) {
		c.sliceChanged(slice)
		return
	}
	t.tracker.HandleDeletion(old.withoutContent()) // the old Service no longer waits for the slice
	c.enqueueSliceService(old)
	c.enqueueSliceService(slice)
}

// sliceDeleted adds the Service of a slice that this process has not deleted.
func (c *Controller) sliceDeleted(slice *EndpointSlice) {
	t := c.term.Load()
	if t == nil || !isManaged(slice) {
		return
	}
	if known := slice.withoutContent(); !t.tracker.Has(known) || !t.tracker.HandleDeletion(known) {
		c.enqueueSliceService(slice)
	}
}

func (c *Controller) enqueueSliceService(slice *EndpointSlice) {
	if service := serviceOf(slice); service.Name != "" {
		c.loop.AddAfter(service, max(sliceDelay, c.cfg.BatchPeriod))
	}
}

// nodeAdded adds the Services of the pods of a node: the library leaves out pods of a missing node, and copies the zone.
func (c *Controller) nodeAdded(node *corev1.Node) {
	for _, pod := range c.pods.OnNode(node.Name) {
		c.podChanged(pod)
	}
	c.nodeChanged(node)
}

func (c *Controller) nodeChanged(*corev1.Node) { c.nodeLoop.AddAfter(allNodes, nodeDelay) }

func (c *Controller) nodeUpdated(old, node *corev1.Node) {
	switch {
	case old.Labels[corev1.LabelTopologyZone] != node.Labels[corev1.LabelTopologyZone]:
		c.nodeAdded(node)
	case isReady(old) != isReady(node):
		c.nodeChanged(node)
	}
}

func isReady(node *corev1.Node) bool { return nodestatus.ReadyStatus(node) == corev1.ConditionTrue }

// Run works for one term. The caches must have synced.
func (c *Controller) Run(ctx context.Context) error {
	t := c.newTerm()
	t.topology.SetNodes(libraryLogger(ctx), c.nodes.List()) // before the first sync, which would remove all hints
	c.term.Store(t)
	defer c.endTerm()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { t.baseline.Read(ctx, c.clock, c.latestVersions) })
	running.Go(func() { t.pods.Read(ctx, c.clock, c.latestPods) })
	c.nodeLoop.Start(ctx, &running, func() []string { return []string{allNodes} }) // a node may have changed since
	c.loop.Run(ctx, c.services.Names)
	return nil
}

func (c *Controller) newTerm() *term {
	t := &term{
		tracker: util.NewEndpointSliceTracker(), triggers: util.NewTriggerTimeTracker(), topology: topologycache.NewTopologyCache(),
		writer: &writer{Interface: c.client, expect: c.slices.Expect},
		states: controller.NewKeyStates[cache.ObjectName](func() *state { return &state{} }),
	}
	t.reconciler = endpointslice.NewReconciler(t.writer, nodeLister{nodes: c.nodes}, c.cfg.MaxEndpoints, t.tracker, t.topology, c.recorder, managedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(c.preferSame))
	return t
}

// endTerm drops the state and the gauges of the term: a standby has no endpoints.
func (c *Controller) endTerm() {
	c.term.Store(nil)
	endpointslicemetrics.EndpointsDesired.Reset()
	endpointslicemetrics.NumEndpointSlices.Reset()
	endpointslicemetrics.DesiredEndpointSlices.Reset()
	endpointslicemetrics.ServicesCountByTrafficDistribution.Reset()
}

// latestVersions reads the current resourceVersion of EndpointSlices.
func (c *Controller) latestVersions(ctx context.Context) (controller.Versions, error) {
	list, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read the version of EndpointSlices: %w", err)
	}
	return controller.Versions{{Resource: c.slices.Resource(), Version: list.ResourceVersion}}, nil
}

// latestPods reads the current resourceVersion of pods.
func (c *Controller) latestPods(ctx context.Context) (controller.Versions, error) {
	version, err := c.pods.Latest(ctx, c.client)
	if err != nil {
		return nil, fmt.Errorf("read the version of pods: %w", err)
	}
	return controller.Versions{{Resource: c.pods.Resource(), Version: version}}, nil
}

// Healthy returns an error if a sync makes no progress.
func (c *Controller) Healthy() error { return errors.Join(c.loop.Healthy(), c.nodeLoop.Healthy()) }

// libraryLogger returns a logger for the library, which logs details at the level of events.
func libraryLogger(ctx context.Context) klog.Logger { return klog.FromContext(ctx).V(2) }
