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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
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

// maxBackoff of a node that failed is short against a grace period.
const maxBackoff = 5 * time.Second

// Deps is what the controller works with. Client must be fenced and may be rate limited. Leases must keep the times of namespace
// kube-node-lease.
type Deps struct {
	Client   kubernetes.Interface
	Reads    kubernetes.Interface // for reads that have to be answered in time; must not be rate limited
	Metadata metadata.Interface   // for lists of all nodes; the same
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
	client   kubernetes.Interface
	reads    kubernetes.Interface
	metadata metadata.Interface
	nodes    *caches.Nodes
	pods     *caches.Pods
	leases   *caches.Leases
	recorder record.EventRecorder
	clock    clock.WithTicker
	metrics  *metrics

	nodeLoop *controller.Loop[string]
	podLoop  *controller.Loop[podKey]

	// Kept from term to term, and on a standby.
	health       *healthMap
	visibility   *visibility
	acquaintance acquaintance

	// New in each term, set before its first sync.
	zones     *zones
	marks     *marks
	lists     *leaseLists
	confirmed *atomic.Bool // the node cache has been compared with the API server
}

// New returns a controller that is not running. It registers its handlers, so it must be called before the caches start.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 1 || cfg.PodWorkers < 1 {
		return nil, fmt.Errorf("build %s: %d workers and %d for pods, want at least one of each", Name, cfg.Workers, cfg.PodWorkers)
	}
	c := &Controller{
		cfg: cfg, client: deps.Client, reads: deps.Reads, metadata: deps.Metadata, nodes: deps.Nodes, pods: deps.Pods, leases: deps.Leases,
		recorder: deps.Recorder, clock: deps.Clock, metrics: newMetrics(deps.Metrics),
		health:       newHealthMap(),
		visibility:   newVisibility(cfg.MonitorGracePeriod, deps.Clock.Now()),
		acquaintance: acquaintance{nodes: map[string]types.UID{}},
	}
	c.nodeLoop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: nodeQueue, Workers: cfg.Workers, MaxBackoff: maxBackoff, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile)
	c.podLoop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: podQueue, Workers: cfg.PodWorkers, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcilePod).GroupBy(func(key podKey) string { return key.Namespace })
	if err := c.listen(); err != nil {
		return nil, fmt.Errorf("build %s: %w", Name, err)
	}
	return c, nil
}

// listen registers handlers. They do a fixed amount of work and never wait: a delayed sign of life is a sign of life missed.
func (c *Controller) listen() error {
	return errors.Join(
		c.nodes.Handle(caches.Handler[*corev1.Node]{
			Add: func(node *corev1.Node) {
				c.observeNode(node)
				c.nodeLoop.Add(node.Name)
			},
			Update: func(old, node *corev1.Node) {
				c.observeNode(node)
				if matters(old, node) {
					c.nodeLoop.Add(node.Name)
				}
			},
			Delete: func(node *corev1.Node) {
				c.health.forget(node.Name, node.UID)
				c.nodeLoop.Add(node.Name)
			},
		}),
		c.leases.Handle(caches.Handler[*coordinationv1.Lease]{
			Add:    c.observeLease,
			Update: func(_, lease *coordinationv1.Lease) { c.observeLease(lease) },
		}),
		c.pods.Handle(caches.Handler[*caches.Pod]{
			Add:    func(pod *caches.Pod) { c.bound(nil, pod) },
			Update: c.bound,
		}),
	)
}

func (c *Controller) observeNode(node *corev1.Node) nodeHealth {
	return c.health.node(node, c.cachedRenewal(node.Name), c.clock.Now())
}

func (c *Controller) observeLease(lease *coordinationv1.Lease) {
	now := c.clock.Now()
	c.visibility.event(now)
	if lease.Namespace == corev1.NamespaceNodeLease {
		c.health.lease(lease.Name, renewal(lease), now)
	}
}

// cachedRenewal is the renewTime of a node's Lease as far as the cache knows, zero if there is none.
func (c *Controller) cachedRenewal(name string) time.Time {
	lease, ok := c.leases.Get(cache.ObjectName{Namespace: corev1.NamespaceNodeLease, Name: name})
	if !ok {
		return time.Time{}
	}
	return renewal(lease)
}

func renewal(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
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
	c.visibility.begin(now)
	defer c.metrics.rest()
	defer c.visibility.end()
	c.giveCredits()
	c.zones, c.marks, c.lists = newZones(c.cfg, c.metrics), newMarks(), &leaseLists{list: c.listLeases, many: c.manyDue, now: c.clock.Now}
	c.confirmed = new(atomic.Bool)
	c.fillZones(now)

	var running sync.WaitGroup
	c.podLoop.Start(ctx, &running, nil) // first: the nodes' loop fills its queue
	running.Go(func() { c.watchOver(ctx) })
	running.Go(func() { c.confirmNodes(ctx) })
	c.nodeLoop.Run(ctx, c.allNodes)
	running.Wait()
	return nil
}

// fillZones counts every node before the first is judged, so that no zone looks worse or better than it is.
func (c *Controller) fillZones(now time.Time) {
	c.zones.freeze(true, now)
	for _, node := range c.nodes.List() {
		c.zones.put(node.Name, zoneOf(node), memberOf(node), now)
	}
	c.zones.freeze(false, now)
}

// allNodes names the nodes there are, and those that there were when we led last.
func (c *Controller) allNodes() []string {
	names := c.acquaintance.names()
	for _, name := range c.nodes.Names() {
		names = append(names, name.Name)
	}
	return names
}

// Healthy fails when a sync has been running for very long.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy())
}
