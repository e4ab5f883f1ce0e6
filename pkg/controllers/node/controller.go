package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

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

// maxBackoff is short compared with a grace period.
const maxBackoff = 5 * time.Second

// Deps are the dependencies of the controller. Client must be fenced and may be rate limited. Leases must keep
// the times of namespace kube-node-lease.
type Deps struct {
	Client   kubernetes.Interface
	Reads    kubernetes.Interface // for live reads and probes; must not be rate limited
	Metadata metadata.Interface   // for lists of all nodes; must not be rate limited
	Nodes    *caches.Nodes
	Pods     *caches.Pods
	Leases   *caches.Leases
	Recorder record.EventRecorder // of component node-controller
	Clock    clock.WithTicker
	Metrics  prometheus.Registerer
}

// Controller is the node lifecycle controller.
type Controller struct {
	cfg      Config
	deps     Deps
	clock    clock.WithTicker
	metrics  *metrics
	nodes    *caches.Nodes
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

// New returns a controller and registers its handlers. The caches must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	c := &Controller{
		cfg: cfg, deps: deps, clock: deps.Clock, metrics: newMetrics(deps.Metrics), nodes: deps.Nodes,
		health: &healthMap{nodes: map[string]nodeHealth{}},
	}
	c.api = &apiHealth{cfg: cfg, client: deps.Reads, clock: deps.Clock, metrics: c.metrics, health: c.health, event: deps.Clock.Now()}
	c.nodeLoop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: nodeQueue, Workers: cfg.Workers, MaxBackoff: maxBackoff, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile)
	c.podLoop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: podQueue, Workers: cfg.PodWorkers, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcilePod).GroupBy(func(key podKey) string { return key.Namespace })
	if err := c.addHandlers(deps); err != nil {
		return nil, fmt.Errorf("build %s: %w", Name, err)
	}
	return c, nil
}

// addHandlers registers handlers, which take constant time and never wait: a late sign of life may come too late.
func (c *Controller) addHandlers(deps Deps) error {
	return errors.Join(
		deps.Nodes.Handle(caches.Handler[*corev1.Node]{
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
		deps.Leases.Handle(caches.Handler[*coordinationv1.Lease]{
			Add:    c.api.observeLease,
			Update: func(_, lease *coordinationv1.Lease) { c.api.observeLease(lease) },
		}),
		deps.Pods.Handle(caches.Handler[*caches.Pod]{
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

// Run works until ctx ends and all workers have returned. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	if c.cfg.MonitorPeriod > c.cfg.MonitorGracePeriod {
		klog.FromContext(ctx).Info("Node monitor period is longer than the grace period",
			"nodeMonitorPeriod", c.cfg.MonitorPeriod, "nodeMonitorGracePeriod", c.cfg.MonitorGracePeriod)
	}
	now := c.clock.Now()
	c.api.begin(now)
	defer c.metrics.reset()
	defer c.api.end()
	c.confirmed.Store(false)
	c.downtimes.Clear()
	c.zones = newZones(c.cfg, c.metrics, c.nodeLoop.AddAfter, c.taintingToggled)

	var running sync.WaitGroup
	c.podLoop.Start(ctx, &running, nil) // first, because the loop of nodes fills its queue
	running.Go(func() { c.api.watch(ctx, c.zones.freeze) })
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
		now := c.clock.Now()
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

// Healthy returns an error if a sync makes no progress.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy())
}
