package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// Name is the controller's name.
const Name = "node-lifecycle-controller"

// Queue names of kube-controller-manager v1.37.
const (
	nodeQueue = "node_lifecycle_controller"
	podQueue  = "node_lifecycle_controller_pods"
)

// nodeWorkers is the number of nodes that are processed at the same time, as in kube-controller-manager v1.37.
const nodeWorkers = 8

// maxBackoff is short compared with a grace period.
const maxBackoff = 5 * time.Second

// Controller is the node lifecycle controller.
type Controller struct {
	controller.Base
	cfg      Config
	reads    kubernetes.Interface // for live reads and probes
	metadata metadata.Interface   // for lists of all nodes
	nodes    *caches.Nodes
	pods     *caches.Pods
	leases   *caches.Leases
	recorder record.EventRecorder
	metrics  *metrics
	nodeLoop *controller.Loop[string]
	podLoop  *controller.Loop[podKey] // apart, so nodes do not wait for pods

	health     *healthMap
	api        *apiHealth
	registered sync.Map // node name → UID, from term to term: a process sends the event of a node once

	// Of one term.
	zones     *zones
	confirmed atomic.Bool // the node cache was equal to the API server at some time
	downtimes sync.Map    // node name → second in which the node became Unknown and its pods were queued
}

// newController returns a controller. The requests of reads and metadata must not wait for a rate limiter.
func newController(cfg Config, b controller.Base, reads kubernetes.Interface, metadata metadata.Interface) (*Controller, error) {
	c := &Controller{Base: b, cfg: cfg, reads: reads, metadata: metadata, recorder: b.Recorder(agent),
		metrics: newMetrics(b.Metrics), health: &healthMap{nodes: map[string]nodeHealth{}}}
	c.api = &apiHealth{cfg: cfg, client: reads, clock: b.Clock, metrics: c.metrics, health: c.health, lastLeaseEvent: b.Clock.Now()}
	c.nodeLoop = controller.NewLoop(controller.LoopConfig{Controller: Name, Queue: nodeQueue, Workers: nodeWorkers,
		MaxBackoff: maxBackoff, Drain: b.Drain, Clock: b.Clock}, b.Metrics, c.reconcile)
	c.podLoop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: podQueue, Workers: controller.PodWorkers, Drain: b.Drain, Clock: b.Clock,
	}, b.Metrics, c.reconcilePod).GroupBy(func(key podKey) string { return key.Namespace })
	if err := errors.Join(caches.Request(&c.nodes, b.Caches.Nodes), caches.Request(&c.pods, b.Caches.Pods),
		caches.Request(&c.leases, b.Caches.Leases)); err != nil {
		return nil, err
	}
	return c, c.addHandlers()
}

// addHandlers registers handlers, which take constant time and never wait: a late sign of life may come too late.
func (c *Controller) addHandlers() error {
	return errors.Join(
		c.nodes.Handle(caches.Handler[*corev1.Node]{
			Add: func(node *corev1.Node) {
				c.observeNode(node)
				c.nodeLoop.Add(node.Name)
			},
			Update: func(old, node *corev1.Node) {
				c.observeNode(node)
				if changesDecision(old, node) {
					c.nodeLoop.Add(node.Name)
				}
			},
			Delete: func(node *corev1.Node) {
				c.health.forget(node.Name, node.UID)
				c.nodeLoop.Add(node.Name)
			},
		}),
		c.leases.Handle(caches.Handler[*coordinationv1.Lease]{
			Add:    c.api.observeLease,
			Update: func(_, lease *coordinationv1.Lease) { c.api.observeLease(lease) },
		}),
		c.pods.Handle(caches.Handler[*caches.Pod]{
			Add:    func(pod *caches.Pod) { c.enqueueBound(nil, pod) },
			Update: c.enqueueBound,
		}),
	)
}

// changesDecision reports whether an update of a node can change a decision. A heartbeat cannot.
func changesDecision(old, node *corev1.Node) bool {
	return old.UID != node.UID ||
		old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!maps.Equal(old.Labels, node.Labels) ||
		!apiequality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!slices.EqualFunc(old.Status.Conditions, node.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status
		})
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	now := c.Clock.Now()
	c.api.begin(now)
	defer c.metrics.reset()
	defer c.api.end()
	c.confirmed.Store(false)
	c.downtimes.Clear()
	c.zones = newZones(c.cfg, c.metrics, c.nodeLoop.AddAfter, c.taintingToggled)

	var running sync.WaitGroup
	c.podLoop.Start(ctx, &running, nil) // first, because the loop of nodes fills its queue
	running.Go(func() { c.api.run(ctx, c.zones.freeze) })
	running.Go(func() { c.confirmNodes(ctx) })
	c.nodeLoop.Run(ctx, func() []string {
		c.zones.begin(c.nodes.List(), now) // the queue is open: no deletion is missed
		return c.allNodes()
	})
	running.Wait()
	return nil
}

// taintingToggled gives Ready nodes a new start when tainting resumes in all zones, and queues all nodes.
func (c *Controller) taintingToggled(stopped bool) {
	if !stopped {
		now := c.Clock.Now()
		c.health.changeAll(func(h *nodeHealth) {
			if h.ready == corev1.ConditionTrue {
				h.heartbeat = h.heartbeat.alive(now)
			}
		})
	}
	c.enqueueAll()
}

func (c *Controller) enqueueAll() {
	for _, name := range c.allNodes() {
		c.nodeLoop.Add(name)
	}
}

// allNodes returns the cached nodes and the registered nodes. Deleted nodes among them need a sync as well.
func (c *Controller) allNodes() (names []string) {
	c.registered.Range(func(name, _ any) bool {
		names = append(names, name.(string))
		return true
	})
	for _, name := range c.nodes.Names() {
		names = append(names, name.Name)
	}
	return names
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy())
}
