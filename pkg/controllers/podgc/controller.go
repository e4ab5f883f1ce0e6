package podgc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/podkey"
)

// Name is the controller's canonical name.
const Name = "pod-garbage-collector-controller"

// Controller collects pods that no kubelet will remove.
type Controller struct {
	controller.Base
	cfg     Config
	pods    *caches.Pods
	nodes   *caches.Nodes
	metrics *metrics

	nodeLoop  *controller.Loop[string]
	podLoop   *controller.Loop[podkey.Key]
	countLoop *controller.Loop[string] // with the single key countKey
	term      *term                    // replaced between terms, when no worker runs
}

const countKey = "finished pods"

// gatherDelay is the delay in which events of pods on one node share one sync of the node.
const gatherDelay = 100 * time.Millisecond

// removalDelay is the time for the API server to remove an unscheduled pod without finalizers by itself.
const removalDelay = time.Second

// term is the state of one term of leadership.
type term struct {
	missing sync.Map // node name → time.Time of the first sync that found pods of the node and no node in the cache
	live    *live.Reads[nodeState]
	surplus atomic.Pointer[map[types.UID]bool] // finished pods to delete
}

func newController(cfg Config, b controller.Base) (*Controller, error) {
	c := &Controller{Base: b, cfg: cfg, metrics: newMetrics(b.Metrics)}
	loop := controller.LoopConfig{Controller: Name, Workers: controller.PodWorkers, Drain: b.Drain, Clock: b.Clock}
	loop.Queue = "orphaned_pods_nodes" // as in kube-controller-manager
	c.nodeLoop = controller.NewLoop(loop, b.Metrics, c.reconcileNode)
	loop.Queue = "pod_gc_pods"
	c.podLoop = controller.NewLoop(loop, b.Metrics, c.reconcilePod).GroupBy(podkey.Key.Namespace)
	loop.Queue, loop.Workers = "pod_gc_finished_pods", 1
	c.countLoop = controller.NewLoop(loop, b.Metrics, c.reconcileCount)
	if err := errors.Join(caches.Request(&c.pods, b.Caches.Pods), caches.Request(&c.nodes, b.Caches.Nodes)); err != nil {
		return nil, err
	}
	return c, c.addHandlers()
}

func (c *Controller) addHandlers() error {
	return errors.Join(
		c.nodes.Handle(caches.Handler[*corev1.Node]{
			Add: func(node *corev1.Node) { c.nodeLoop.Add(node.Name) },
			Update: func(old, node *corev1.Node) {
				if isOutOfService(node) && !isOutOfService(old) {
					c.nodeLoop.Add(node.Name)
				}
			},
			Delete: func(node *corev1.Node) { c.nodeLoop.Add(node.Name) },
		}),
		c.pods.Handle(caches.Handler[*caches.Pod]{
			Add: c.enqueue,
			Update: func(old, pod *caches.Pod) {
				if old.UID != pod.UID || old.NodeName != pod.NodeName || (old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) {
					c.enqueue(pod)
				}
			},
			Delete: func(pod *caches.Pod) {
				if pod.NodeName != "" && !c.cachedNode(pod.NodeName).exists && len(c.pods.OnNode(pod.NodeName)) == 0 {
					c.nodeLoop.Add(pod.NodeName) // ends the quarantine of a missing node
				}
			},
		}),
	)
}

// enqueue queues a terminating pod without a node, or the node of a pod with a reason to collect it. The sync of
// the node drops the shared live read, which may be older than the pod. A later event queues other pods.
func (c *Controller) enqueue(pod *caches.Pod) {
	switch {
	case pod.NodeName == "" && pod.DeletionTimestamp != nil:
		c.podLoop.AddAfter(podkey.ForPod(pod), removalDelay)
	case pod.NodeName != "" && reasonFor(pod, c.cachedNode(pod.NodeName), false, false) != none:
		c.nodeLoop.AddAfter(pod.NodeName, gatherDelay)
	}
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.term = &term{live: live.NewReads(c.Clock, c.readNode)}
	var loops sync.WaitGroup
	c.podLoop.Start(ctx, &loops, nil) // first, because the other loops fill its queue
	for _, pod := range c.pods.List() {
		if pod.NodeName == "" {
			c.enqueue(pod)
		}
	}
	if c.cfg.TerminatedPodThreshold > 0 {
		c.countLoop.Start(ctx, &loops, func() []string { return []string{countKey} })
	}
	c.nodeLoop.Run(ctx, c.pods.BoundNodes)
	loops.Wait()
	return nil
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy(), c.countLoop.Healthy())
}
