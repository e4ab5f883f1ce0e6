package podgc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/podkey"
)

// Name is the controller's canonical name.
const Name = "pod-garbage-collector-controller"

// Deps are what the controller works with.
type Deps struct {
	Client  kubernetes.Interface // fenced
	Pods    *caches.Pods
	Nodes   *caches.Nodes
	Clock   clock.WithTicker
	Metrics prometheus.Registerer
}

// Controller collects pods that no kubelet will remove.
type Controller struct {
	cfg     Config
	client  kubernetes.Interface
	pods    *caches.Pods
	nodes   *caches.Nodes
	clock   clock.WithTicker
	metrics *metrics

	finished  atomic.Int64 // cached pods that count towards the threshold
	nodeLoop  *controller.Loop[string]
	podLoop   *controller.Loop[podkey.Key]
	countLoop *controller.Loop[string] // its only key is countKey
	term      *term                    // replaced between terms, when no worker runs
}

const countKey = "finished pods"

// gather collects events of pods on one node into one look at that node.
const gather = 100 * time.Millisecond

// removalDelay is how long the API server is given to remove an unscheduled pod without finalizers by itself: it announces the deletion a moment before
// the pod is gone.
const removalDelay = time.Second

// term is the knowledge that ends with a term.
type term struct {
	absence *absence
	live    *live.Reads[nodeState]
	surplus atomic.Pointer[map[types.UID]bool] // finished pods that are to go
}

// New registers the controller's handlers with the caches, which must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 1 || cfg.Quarantine < 0 || cfg.Period <= 0 || cfg.Drain < 0 {
		return nil, fmt.Errorf("%s: invalid configuration %+v", Name, cfg)
	}
	c := &Controller{
		cfg: cfg, client: deps.Client, pods: deps.Pods, nodes: deps.Nodes, clock: deps.Clock, metrics: newMetrics(deps.Metrics),
	}
	loop := controller.LoopConfig{Controller: Name, Workers: cfg.Workers, Drain: cfg.Drain, Clock: deps.Clock}
	loop.Queue = "orphaned_pods_nodes" // upstream's name
	c.nodeLoop = controller.NewLoop(loop, deps.Metrics, c.reconcileNode)
	loop.Queue = "pod_gc_pods"
	c.podLoop = controller.NewLoop(loop, deps.Metrics, c.reconcilePod).GroupBy(podkey.Key.Namespace)
	loop.Queue, loop.Workers = "pod_gc_finished_pods", 1
	c.countLoop = controller.NewLoop(loop, deps.Metrics, c.reconcileCount)
	if err := errors.Join(c.handleNodes(), c.handlePods()); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return c, nil
}

func (c *Controller) handleNodes() error {
	return c.nodes.Handle(caches.Handler[*corev1.Node]{
		Add: func(node *corev1.Node) { c.nodeLoop.Add(node.Name) },
		Update: func(old, node *corev1.Node) {
			if isOutOfService(node) && !isOutOfService(old) {
				c.nodeLoop.Add(node.Name)
			}
		},
		Delete: func(node *corev1.Node) { c.nodeLoop.Add(node.Name) },
	})
}

func (c *Controller) handlePods() error {
	return c.pods.Handle(caches.Handler[*caches.Pod]{
		Add: func(pod *caches.Pod) {
			c.finished.Add(one(counts(pod)))
			c.enqueue(pod)
		},
		Update: func(old, pod *caches.Pod) {
			c.finished.Add(one(counts(pod)) - one(counts(old)))
			if old.UID != pod.UID || old.NodeName != pod.NodeName || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) {
				c.enqueue(pod)
			}
		},
		Delete: c.podDeleted,
	})
}

func (c *Controller) podDeleted(pod *caches.Pod) {
	c.finished.Add(-one(counts(pod)))
	if pod.NodeName != "" && c.pods.CountOnNode(pod.NodeName) == 0 {
		c.nodeLoop.Add(pod.NodeName) // nobody waits for the end of its quarantine any more
	}
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// enqueue has a pod looked at, by way of its node if it has one: the node's sync sees to it that no live answer is used that is older
// than the pod. That sync goes through all pods of the node, so events that come together share one. Pods of nodes that are
// there and in service are none of ours; if their node changes, its own event tells.
func (c *Controller) enqueue(pod *caches.Pod) {
	switch {
	case pod.NodeName == "" && pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0:
		c.podLoop.Add(podkey.Of(pod))
	case pod.NodeName == "" && pod.DeletionTimestamp != nil:
		c.podLoop.AddAfter(podkey.Of(pod), removalDelay)
	case pod.NodeName != "" && mayConcern(c.cachedNode(pod.NodeName), pod):
		c.nodeLoop.AddAfter(pod.NodeName, gather)
	}
}

// Run works for one term and returns nil when ctx has ended and everything it started has.
func (c *Controller) Run(ctx context.Context) error {
	c.term = &term{absence: newAbsence(), live: live.NewReads(c.clock, c.look)}
	var loops sync.WaitGroup
	c.podLoop.Start(ctx, &loops, c.unscheduledTerminating) // first: the other loops fill its queue
	if c.cfg.TerminatedPodThreshold > 0 {
		c.countLoop.Start(ctx, &loops, func() []string { return []string{countKey} })
	}
	c.nodeLoop.Run(ctx, c.pods.BoundNodes)
	loops.Wait()
	return nil
}

func (c *Controller) unscheduledTerminating() []podkey.Key {
	var keys []podkey.Key
	for _, pod := range c.pods.List() {
		if pod.NodeName == "" && pod.DeletionTimestamp != nil {
			keys = append(keys, podkey.Of(pod))
		}
	}
	return keys
}

// Healthy fails when a sync has been running for too long.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy(), c.countLoop.Healthy())
}
