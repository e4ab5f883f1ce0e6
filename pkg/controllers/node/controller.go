package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// Queue names, which are labels of metrics, are those of kube-controller-manager v1.37.
const (
	nodeQueue = "node_lifecycle_controller"
	podQueue  = "node_lifecycle_controller_pods"
)

// maxBackoff is short compared with a grace period.
const maxBackoff = 5 * time.Second

// Deps is what the controller works with. Client must be fenced and may be rate limited. Leases must keep the times of namespace
// kube-node-lease.
type Deps struct {
	Client   kubernetes.Interface
	Reads    kubernetes.Interface // for live reads, and the probe that has to be answered in time; must not be rate limited
	Metadata metadata.Interface   // for lists of all nodes; the same
	Nodes    *caches.Nodes
	Pods     *caches.Pods
	Leases   *caches.Leases
	Recorder record.EventRecorder // of component node-controller
	Clock    clock.WithTicker
	Metrics  prometheus.Registerer
}

// Controller is the node lifecycle controller: it wires its parts together, and reconcile tells how they work on one node.
type Controller struct {
	cfg      Config
	clock    clock.WithTicker
	metrics  *metrics
	nodes    *caches.Nodes
	nodeLoop *controller.Loop[string]

	health       *healthMap
	silence      *silence
	confirmation *confirmation
	zones        *zones // new in each term
	writer       *nodeWriter
	pods         *podMarker
	announcer    *announcer
}

// New returns a controller that is not running. It registers its handlers, so it must be called before the caches start.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 1 || cfg.PodWorkers < 1 {
		return nil, fmt.Errorf("build %s: %d workers and %d for pods, want at least one of each", Name, cfg.Workers, cfg.PodWorkers)
	}
	c := &Controller{
		cfg: cfg, clock: deps.Clock, metrics: newMetrics(deps.Metrics), nodes: deps.Nodes,
		health: newHealthMap(), announcer: newAnnouncer(deps.Recorder),
	}
	visibility := newVisibility(cfg, deps.Clock.Now())
	leases := &leaseReader{cfg: cfg, client: deps.Reads, cache: deps.Leases, clock: deps.Clock, health: c.health, visibility: visibility}
	c.silence = &silence{cfg: cfg, clock: deps.Clock, metrics: c.metrics, health: c.health, visibility: visibility, leases: leases}
	c.confirmation = &confirmation{nodes: deps.Nodes, metadata: deps.Metadata, clock: deps.Clock, visibility: visibility}
	c.writer = &nodeWriter{
		client: deps.Client, reads: deps.Reads, clock: deps.Clock, visibility: visibility, ledger: map[string]ledgerEntry{},
	}
	c.pods = &podMarker{
		client: deps.Client, nodes: deps.Nodes, pods: deps.Pods, recorder: deps.Recorder, clock: deps.Clock, visibility: visibility,
	}
	c.nodeLoop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: nodeQueue, Workers: cfg.Workers, MaxBackoff: maxBackoff, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile)
	c.pods.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: podQueue, Workers: cfg.PodWorkers, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.pods.reconcile).GroupBy(func(key podKey) string { return key.Namespace })
	if err := c.listen(deps); err != nil {
		return nil, fmt.Errorf("build %s: %w", Name, err)
	}
	return c, nil
}

// listen registers handlers. They do a fixed amount of work and never wait: a delayed sign of life is a sign of life missed.
func (c *Controller) listen(deps Deps) error {
	return errors.Join(
		deps.Nodes.Handle(caches.Handler[*corev1.Node]{
			Add: func(node *corev1.Node) {
				c.silence.observeNode(node)
				c.nodeLoop.Add(node.Name)
			},
			Update: func(old, node *corev1.Node) {
				c.silence.observeNode(node)
				if matters(old, node) {
					c.nodeLoop.Add(node.Name)
				}
			},
			Delete: func(node *corev1.Node) {
				c.health.forget(node.Name, node.UID)
				c.writer.forget(node.Name, node.UID)
				c.nodeLoop.Add(node.Name)
			},
		}),
		deps.Leases.Handle(caches.Handler[*coordinationv1.Lease]{
			Add:    c.silence.observeLease,
			Update: func(_, lease *coordinationv1.Lease) { c.silence.observeLease(lease) },
		}),
		deps.Pods.Handle(caches.Handler[*caches.Pod]{
			Add:    func(pod *caches.Pod) { c.pods.bound(nil, pod) },
			Update: c.pods.bound,
		}),
	)
}

// matters reports whether an update of a node can change what we decide. A mere heartbeat cannot.
func matters(old, node *corev1.Node) bool {
	return old.UID != node.UID ||
		old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!maps.Equal(old.Labels, node.Labels) ||
		!apiequality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!slices.EqualFunc(old.Status.Conditions, node.Status.Conditions, func(a, b corev1.NodeCondition) bool {
			return a.Type == b.Type && a.Status == b.Status
		})
}

// Run works for one term.
func (c *Controller) Run(ctx context.Context) error {
	if c.cfg.MonitorPeriod > c.cfg.MonitorGracePeriod {
		klog.FromContext(ctx).Info("Nodes are judged less often than they may be silent",
			"nodeMonitorPeriod", c.cfg.MonitorPeriod, "nodeMonitorGracePeriod", c.cfg.MonitorGracePeriod)
	}
	now := c.clock.Now()
	c.silence.begin(now)
	defer c.metrics.reset()
	defer c.silence.end()
	c.confirmation.begin()
	c.zones = newZones(c.cfg, c.metrics)
	c.zones.begin(c.nodes.List(), now)

	var running sync.WaitGroup
	c.pods.start(ctx, &running) // first: the nodes' loop fills its queue
	running.Go(func() { c.silence.watch(ctx, c.freeze) })
	running.Go(func() {
		c.confirmation.run(ctx, func() { c.wake(effects{all: true}, c.clock.Now()) }) // what was put off until then
	})
	c.nodeLoop.Run(ctx, c.allNodes)
	running.Wait()
	return nil
}

// freeze keeps the zones as they are while silence is not trusted.
func (c *Controller) freeze(frozen bool, now time.Time) { c.wake(c.zones.freeze(frozen, now), now) }

// wake queues the nodes that a change of zones concerns.
func (c *Controller) wake(e effects, now time.Time) {
	if e.resumed { // nodes that were alive when everything stopped are given a new start
		c.health.changeAll(func(h *nodeHealth) {
			if h.ready == corev1.ConditionTrue {
				h.heartbeat = h.heartbeat.alive(now)
			}
		})
	}
	if e.all {
		for _, name := range c.nodes.Names() {
			c.nodeLoop.Add(name.Name)
		}
	}
	for name, at := range e.wake {
		c.nodeLoop.AddAfter(name, at.Sub(now))
	}
}

// allNodes names the nodes there are, those that there were when we led last, and those that have gone since the zones were filled.
func (c *Controller) allNodes() []string {
	names := append(c.announcer.names(), c.zones.names()...)
	for _, name := range c.nodes.Names() {
		names = append(names, name.Name)
	}
	return names
}

// Healthy fails when a sync has been running for very long.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.pods.loop.Healthy())
}
