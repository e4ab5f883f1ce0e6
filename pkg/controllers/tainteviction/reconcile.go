package tainteviction

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/podkey"
)

// liveRecheck is the time until the next look at a pod that the caches evict and the API server does not. An event that
// ends the disagreement comes first, unless a watch is frozen.
const liveRecheck = 30 * time.Second

// goneRecheck is when to look again at a pod that went while we wrote it.
const goneRecheck = 100 * time.Millisecond

// reconcileNode queues the pods of a node.
func (c *Controller) reconcileNode(_ context.Context, name string) (controller.Result, error) {
	now := c.clock.Now()
	c.term.live.Forget(name) // an answer from before this change must not be used
	state := c.cachedNode(name, now)
	for _, pod := range c.pods.OnNode(name) {
		if len(state.taints) > 0 {
			c.ledger.see(pod.UID, now)
		}
		c.podLoop.Add(podkey.Of(pod))
	}
	return controller.Result{}, nil
}

// reconcilePod brings one pod to where its node's taints want it.
func (c *Controller) reconcilePod(ctx context.Context, key podkey.Key) (controller.Result, error) {
	result, err := c.decidePod(ctx, key)
	if errors.Is(err, errGone) {
		return controller.Result{RequeueAfter: goneRecheck}, nil
	}
	return result, err
}

// decidePod decides by the caches what becomes of a pod. Only an eviction needs more.
func (c *Controller) decidePod(ctx context.Context, key podkey.Key) (controller.Result, error) {
	pod, ok := c.pods.Get(key.Name)
	if !ok || pod.UID != key.UID || pod.DeletionTimestamp != nil || pod.NodeName == "" {
		c.gone(key)
		return controller.Result{}, nil
	}
	now := c.clock.Now()
	e := c.ledger.see(key.UID, now)
	if e.deleted {
		return controller.Result{}, nil // the cache does not show it yet
	}
	d := c.judge(c.cachedNode(pod.NodeName, now), pod, e.seen, now)
	if d.verdict == leaves {
		return c.evict(ctx, key, pod, e.seen)
	}
	return c.keep(ctx, key, pod, d, now)
}

// judge decides about a pod by one view of its node.
func (c *Controller) judge(node nodeState, pod *caches.Pod, seen, now time.Time) decision {
	l := limitsOf(node.taints, pod.Tolerations, since(boundAt(pod), seen))
	return decide(l, c.term.trusted, now)
}

// keep does what is due for a pod that does not leave now.
func (c *Controller) keep(ctx context.Context, key podkey.Key, pod *caches.Pod, d decision, now time.Time) (controller.Result, error) {
	if d.verdict == stays {
		c.calledOff(key)
	} else {
		c.ledger.expect(key.UID, d.due)
	}
	if d.verdict != holds && marked(pod) {
		if err := c.unmark(ctx, key); err != nil {
			return controller.Result{}, err
		}
	}
	if d.verdict == stays {
		return controller.Result{}, nil
	}
	return controller.Result{RequeueAfter: d.again.Sub(now)}, nil
}

// gone ends the watch over a pod that was deleted, by whomever.
func (c *Controller) gone(key podkey.Key) {
	if e := c.ledger.drop(key.UID); e.awaited() && !e.started {
		c.recordCancelled(key)
	}
}

// calledOff ends the watch over a pod that no taint wants to leave.
func (c *Controller) calledOff(key podkey.Key) {
	if c.ledger.drop(key.UID).awaited() {
		c.recordCancelled(key)
	}
}

// cachedNode is a node's state as the cache has it.
func (c *Controller) cachedNode(name string, now time.Time) nodeState {
	node, ok := c.nodes.Get(cache.ObjectName{Name: name})
	if !ok {
		return nodeState{}
	}
	return c.state(node, now)
}

func (c *Controller) state(node *corev1.Node, now time.Time) nodeState {
	return stateOf(node, func(t corev1.Taint) time.Time { return c.taints.of(node.Name, t, now) })
}

// readNode reads a node's state from the API server.
func (c *Controller) readNode(ctx context.Context, name string) (nodeState, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nodeState{}, nil
	}
	if err != nil {
		return nodeState{}, fmt.Errorf("get node %s: %w", name, err)
	}
	return c.state(node, c.clock.Now()), nil
}
