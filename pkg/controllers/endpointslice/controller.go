package endpointslice

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	endpointslicemetrics "k8s.io/endpointslice/metrics"
	"k8s.io/endpointslice/topologycache"
	"k8s.io/endpointslice/util"

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
	// gatherDelay is the delay after an event of a node or an unexpected event of a slice. Later events share the sync.
	gatherDelay = time.Second // upstream's for slices
	// minStaleDelay is the first delay of a Service whose cached slices lag. The delay grows to a second.
	minStaleDelay = 20 * time.Millisecond
	allNodes      = "nodes" // the only key of the loop of nodes
)

// Controller keeps the EndpointSlices of Services.
type Controller struct {
	controller.Base
	cfg      Config
	recorder record.EventRecorder

	services caches.Store[*corev1.Service]
	slices   caches.Store[*EndpointSlice]
	pods     *caches.Pods
	nodes    *caches.Nodes

	loop             *controller.Loop[cache.ObjectName] // of Services
	nodeLoop         *controller.Loop[string]
	term             atomic.Pointer[term] // nil outside of a term
	topologyOutdated atomic.Bool          // may lack changes of nodes
}

// term is the state of one term of leadership.
type term struct {
	states          *controller.KeyStates[cache.ObjectName, state]
	baseline        controller.Baseline        // of slices and pods
	serviceBaseline controller.Baseline        // apart: while only Services lag, a GET is sufficient
	tracker         *util.EndpointSliceTracker // generations of the slices that this process wrote or read live
	triggers        *util.TriggerTimeTracker
	topology        *topologycache.TopologyCache

	library    libraryClient
	reconciler *endpointslice.Reconciler
}

func newController(cfg Config, b controller.Base) (*Controller, error) {
	c := &Controller{Base: b, cfg: cfg, recorder: b.Recorder(eventSource)}
	endpointslicemetrics.RegisterMetrics()
	loop := controller.LoopConfig{Controller: Name, Queue: queueName, Workers: int(cfg.Workers), MinBackoff: minBackoff, Drain: b.Drain, Clock: b.Clock}
	c.loop = controller.NewLoop(loop, b.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	loop.Queue, loop.Workers = queueName+"_nodes", 1
	c.nodeLoop = controller.NewLoop(loop, b.Metrics, c.reconcileNodes)
	var errs [4]error
	errs[0] = errors.Join(caches.Request(&c.pods, b.Caches.Pods), caches.Request(&c.nodes, b.Caches.Nodes))
	// Another Watch of a cached type adds an index.
	_, errs[1] = caches.Watch[*caches.Pod](b.Caches, corev1.SchemeGroupVersion.WithResource("pods"), caches.Options{Indexers: cache.Indexers{byLabel: indexByLabel}})
	c.services, errs[2] = caches.Watch[*corev1.Service](b.Caches, corev1.SchemeGroupVersion.WithResource("services"), caches.Options{
		Trim: caches.Trim(trimService), Indexers: cache.Indexers{bySelector: indexBySelector},
		Informer: b.Caches.Factory().Core().V1().Services().Informer,
	})
	c.slices, errs[3] = caches.Watch[*EndpointSlice](b.Caches, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), caches.Options{
		Trim: caches.Trim(trimSlice), Indexers: cache.Indexers{byService: indexByService},
		Informer: b.Caches.Factory().Discovery().V1().EndpointSlices().Informer,
	})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return c, errors.Join(
		c.services.Handle(caches.Handler[*corev1.Service]{Add: c.enqueueService, Update: func(_, s *corev1.Service) { c.enqueueService(s) }, Delete: c.enqueueService}),
		c.pods.Handle(caches.Handler[*caches.Pod]{Add: c.podChanged, Update: c.podUpdated, Delete: c.podChanged}),
		c.slices.Handle(caches.Handler[*EndpointSlice]{Add: c.sliceChanged, Update: c.sliceUpdated, Delete: c.sliceGone}),
		c.nodes.Handle(caches.Handler[*corev1.Node]{Add: c.nodeChanged, Update: c.nodeUpdated, Delete: c.enqueueTopology}),
	)
}

func (c *Controller) enqueueService(s *corev1.Service) { c.loop.Add(cache.MetaObjectToName(s)) }

func (c *Controller) podChanged(pod *caches.Pod) { c.enqueueSelecting(pod, nil) }

// podUpdated adds all Services of a pod if slices show the change. If only labels changed, Services that select both
// the old and the new labels are left out.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	before := old.Labels
	if endpointChanged(old, pod) {
		before = nil
	}
	c.enqueueSelecting(pod, before)
	c.enqueueSelecting(old, pod.Labels)
}

// enqueueSelecting adds the Services that select a pod and would not select it with the other labels. Without other
// labels, these are all Services that select the pod.
func (c *Controller) enqueueSelecting(pod *caches.Pod, other map[string]string) {
	if maps.Equal(pod.Labels, other) {
		return
	}
	for key, value := range pod.Labels {
		for _, service := range c.services.ByIndex(bySelector, labelPair(pod.Namespace, key, value)) {
			if selects(service, pod.Labels) && !selects(service, other) {
				c.loop.AddAfter(cache.MetaObjectToName(service), c.cfg.BatchPeriod)
			}
		}
	}
}

// sliceChanged adds the Service of a slice, unless this process has written or read this generation or a later one.
func (c *Controller) sliceChanged(slice *EndpointSlice) {
	if t := c.term.Load(); t != nil && t.tracker.ShouldSync(&discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}) {
		c.enqueueSliceService(slice)
	}
}

func (c *Controller) sliceUpdated(old, slice *EndpointSlice) {
	if serviceOf(old) != serviceOf(slice) || old.UID != slice.UID {
		c.sliceGone(old)
	}
	c.sliceChanged(slice)
}

// sliceGone adds the Service of a slice that is deleted, is being deleted or belongs to another Service now, unless
// this process has deleted the slice or a live read lacked it. From now on no sync waits for the slice.
func (c *Controller) sliceGone(slice *EndpointSlice) {
	known := &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}
	if t := c.term.Load(); t != nil && (!t.tracker.Has(known) || !t.tracker.HandleDeletion(known)) {
		c.enqueueSliceService(slice)
	}
}

func (c *Controller) enqueueSliceService(slice *EndpointSlice) {
	if service := serviceOf(slice); service.Name != "" {
		c.loop.AddAfter(service, max(gatherDelay, c.cfg.BatchPeriod))
	}
}

// nodeChanged adds the Services of the pods of a node: slices show the zone of a node, and leave out pods of a missing
// node.
func (c *Controller) nodeChanged(node *corev1.Node) {
	c.enqueueTopology(node) // before the Services, whose syncs refresh the topology
	for _, pod := range c.pods.OnNode(node.Name) {
		c.podChanged(pod)
	}
}

func (c *Controller) nodeUpdated(old, node *corev1.Node) {
	if old.Labels[corev1.LabelTopologyZone] != node.Labels[corev1.LabelTopologyZone] {
		c.nodeChanged(node)
	} else if nodestatus.ReadyStatus(old) != nodestatus.ReadyStatus(node) {
		c.enqueueTopology(node)
	}
}

func (c *Controller) enqueueTopology(*corev1.Node) {
	c.topologyOutdated.Store(true)
	c.nodeLoop.AddAfter(allNodes, gatherDelay)
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	t := &term{
		states:  controller.NewKeyStates[cache.ObjectName](func() *state { return &state{} }),
		tracker: util.NewEndpointSliceTracker(), triggers: util.NewTriggerTimeTracker(), topology: topologycache.NewTopologyCache(),
	}
	c.topologyOutdated.Store(true)
	t.reconciler = endpointslice.NewReconciler(&t.library, c.nodes.Lister(), c.cfg.MaxEndpoints, t.tracker, t.topology, c.recorder, managedBy,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	c.term.Store(t)
	defer c.term.Store(nil)
	// A standby exposes no endpoints.
	defer endpointslicemetrics.EndpointsDesired.Reset()
	defer endpointslicemetrics.NumEndpointSlices.Reset()
	defer endpointslicemetrics.DesiredEndpointSlices.Reset()
	defer endpointslicemetrics.ServicesCountByTrafficDistribution.Reset()
	var running sync.WaitGroup
	defer running.Wait()
	core := c.Client.CoreV1()
	running.Go(func() {
		t.baseline.Read(ctx, caches.LatestVersion(c.slices, c.Client.DiscoveryV1().EndpointSlices("").List), caches.LatestVersion(c.pods, core.Pods("").List))
	})
	running.Go(func() { t.serviceBaseline.Read(ctx, caches.LatestVersion(c.services, core.Services("").List)) })
	c.nodeLoop.Start(ctx, &running, func() []string { return []string{allNodes} })
	c.loop.Run(ctx, c.services.Names)
	return nil
}

// reconcileNodes passes all nodes to the topology cache, and adds the Services with hints out of balance.
func (c *Controller) reconcileNodes(ctx context.Context, _ string) (controller.Result, error) {
	t := c.term.Load()
	t.topology.SetNodes(libraryLogger(ctx), c.nodes.List())
	for _, key := range t.topology.GetOverloadedServices() {
		name, _ := cache.ParseObjectName(key) // of a Service that was synced
		c.loop.Add(name)
	}
	return controller.Result{}, nil
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error { return errors.Join(c.loop.Healthy(), c.nodeLoop.Healthy()) }
