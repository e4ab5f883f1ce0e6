package tainteviction

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/podkey"
)

// Name is the controller's canonical name and the component of its events.
const Name = "taint-eviction-controller"

// Controller evicts pods from nodes with NoExecute taints.
type Controller struct {
	controller.Base
	grace    time.Duration // --node-monitor-grace-period
	pods     *caches.Pods
	nodes    *caches.Nodes
	recorder record.EventRecorder
	metrics  *metrics

	ledger   *ledger
	seen     *firstSeen
	nodeLoop *controller.Loop[string]
	podLoop  *controller.Loop[podkey.Key]
	term     *term // replaced between terms, when no worker runs
}

// term is the state of one term of leadership.
type term struct {
	trusted time.Time // a grace period after the start: from then on, taints of node health evict pods
	live    *live.Reads[[]taint]
}

func newController(grace time.Duration, b controller.Base) (*Controller, error) {
	c := &Controller{Base: b, grace: grace, recorder: b.Recorder(Name), ledger: &ledger{pods: map[types.UID]entry{}}, seen: newFirstSeen()}
	c.metrics = newMetrics(b.Metrics, c.ledger)
	loop := controller.LoopConfig{Controller: Name, Queue: "noexec_taint_node", Workers: controller.PodWorkers, Drain: b.Drain, Clock: b.Clock}
	c.nodeLoop = controller.NewLoop(loop, b.Metrics, c.reconcileNode)
	loop.Queue = "noexec_taint_pod" // both as in kube-controller-manager
	c.podLoop = controller.NewLoop(loop, b.Metrics, c.reconcilePod).GroupBy(podkey.Key.Namespace)
	if err := errors.Join(caches.Request(&c.pods, b.Caches.Pods), caches.Request(&c.nodes, b.Caches.Nodes)); err != nil {
		return nil, err
	}
	return c, errors.Join(c.handleNodes(), c.handlePods())
}

func (c *Controller) handleNodes() error {
	changed := func(node *corev1.Node) {
		c.seen.observe(node, c.Clock.Now())
		c.nodeLoop.Add(node.Name)
	}
	return c.nodes.Handle(caches.Handler[*corev1.Node]{
		Add: changed,
		Update: func(old, node *corev1.Node) {
			if !sameForPods(old, node) {
				changed(node)
			}
		},
		Delete: func(node *corev1.Node) { changed(&corev1.Node{ObjectMeta: node.ObjectMeta}) }, // without taints
	})
}

func (c *Controller) handlePods() error {
	changed := func(pod *caches.Pod) {
		if c.mayConcern(pod) {
			c.podLoop.Add(podkey.ForPod(pod))
		}
	}
	return c.pods.Handle(caches.Handler[*caches.Pod]{
		Add: changed,
		Update: func(old, pod *caches.Pod) {
			if old.UID != pod.UID {
				changed(old) // replaced by a pod of the same name while the watch was interrupted
			}
			if changesDeadline(old, pod) {
				changed(pod)
			}
		},
		Delete: changed,
	})
}

// mayConcern reports whether an eviction of a pod may be due or pending. A change of a node queues the pods of
// the node.
func (c *Controller) mayConcern(pod *caches.Pod) bool {
	node, ok := c.nodes.Get(cache.ObjectName{Name: pod.NodeName})
	return ok && len(noExecuteTaints(node.Spec.Taints)) > 0 || c.ledger.contains(pod.UID)
}

// changesDeadline reports whether an update moves or ends the deadline of a pod.
func changesDeadline(old, pod *caches.Pod) bool {
	return old.UID != pod.UID || old.NodeName != pod.NodeName ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		!caches.SameTolerations(old.Tolerations, pod.Tolerations)
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.term = &term{
		trusted: c.Clock.Now().Add(c.grace),
		live:    live.NewReads(c.Clock, c.readTaints),
	}
	defer c.ledger.clear()
	var loops sync.WaitGroup
	c.podLoop.Start(ctx, &loops, nil) // first, because the loop of nodes fills its queue
	c.nodeLoop.Run(ctx, c.taintedNodes)
	loops.Wait()
	return nil
}

// taintedNodes returns the nodes that may have pods to evict.
func (c *Controller) taintedNodes() []string {
	var names []string
	for _, node := range c.nodes.List() {
		if len(noExecuteTaints(node.Spec.Taints)) > 0 {
			names = append(names, node.Name)
		}
	}
	return names
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy())
}
