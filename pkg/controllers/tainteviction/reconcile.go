package tainteviction

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/podkey"
)

// liveRecheck is the time until the next decision about a pod that only the cached objects evict. An event
// normally comes first, unless a watch is frozen.
const liveRecheck = 30 * time.Second

// reconcileNode queues the pods of a node.
func (c *Controller) reconcileNode(_ context.Context, name string) (controller.Result, error) {
	now := c.Clock.Now()
	c.term.live.Forget(name) // the next read must be newer than this event
	taints := c.cachedTaints(name, now)
	for _, pod := range c.pods.OnNode(name) {
		if len(taints) > 0 {
			c.ledger.observe(pod.UID, now)
		}
		c.podLoop.Add(podkey.ForPod(pod))
	}
	return controller.Result{}, nil
}

// reconcilePod decides with the caches whether a pod may stay. Only an eviction needs live reads.
func (c *Controller) reconcilePod(ctx context.Context, key podkey.Key) (controller.Result, error) {
	pod, ok := c.pods.Get(key.Name)
	if !ok || pod.UID != key.UID || pod.DeletionTimestamp != nil || pod.NodeName == "" {
		c.endEviction(key)
		return controller.Result{}, nil
	}
	now := c.Clock.Now()
	e := c.ledger.observe(key.UID, now)
	d := c.decide(c.cachedTaints(pod.NodeName, now), pod, e)
	if d.leaves(now) {
		return c.evict(ctx, key, pod, e)
	}
	return controller.Result{RequeueAfter: c.keep(key, d, now)}, nil
}

// decide decides about a pod with one view of its node.
func (c *Controller) decide(taints []taint, pod *caches.Pod, e entry) decision {
	return decide(taints, pod.Tolerations, e.countdowns, startTime(boundAt(pod), e.seen), c.term.trusted)
}

// keep records the deadline of a pod that does not leave now. It returns the time until the next decision, 0
// if the pod stays.
func (c *Controller) keep(key podkey.Key, d decision, now time.Time) time.Duration {
	if d.stays() {
		c.endEviction(key)
		return 0
	}
	c.ledger.setDecision(key.UID, d)
	return d.recheckAt.Sub(now)
}

// endEviction ends the eviction of a pod that stays or is deleted. A started eviction is not reported as
// cancelled.
func (c *Controller) endEviction(key podkey.Key) {
	if e := c.ledger.drop(key.UID); e.isPending() && !e.started {
		c.recorder.Eventf(podReference(key), corev1.EventTypeNormal, eventReason, "Cancelling deletion of Pod %s", key.Name)
	}
}

func (c *Controller) cachedTaints(name string, now time.Time) []taint {
	node, ok := c.nodes.Get(cache.ObjectName{Name: name})
	if !ok {
		return nil
	}
	return evictingTaints(node, c.seen, now)
}

// readTaints reads the taints of a node from the API server.
func (c *Controller) readTaints(ctx context.Context, name string) ([]taint, error) {
	node, err := live.Find(ctx, name, c.Client.CoreV1().Nodes().Get)
	if node == nil {
		return nil, err
	}
	return evictingTaints(node, c.seen, c.Clock.Now()), nil
}
