package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// When to look again at a node for which not everything could be done.
const (
	staleRecheck = 500 * time.Millisecond // if the watch is stuck, all nodes are looked at so often
	blindRecheck = 5 * time.Second        // recovery gives a whole grace period, so nothing is urgent
)

// reconcile brings one node's conditions, taints and labels in line with what is known about it. An error means that something
// could not be done; all that could be was done.
func (c *Controller) reconcile(ctx context.Context, name string) (controller.Result, error) {
	begun := c.clock.Now()
	now := begun
	defer func() { c.metrics.updateSeconds.Observe(c.clock.Since(begun).Seconds()) }()

	// 1. Observe the node: cached, or live if the cache does not show our own last write, or was refused as outdated.
	cached, ok := c.nodes.Get(cache.ObjectName{Name: name})
	if !ok {
		c.forget(name, now)
		return controller.Result{}, nil
	}
	node, err := c.writer.newest(ctx, cached)
	if err != nil || node == nil {
		return controller.Result{}, err
	}
	c.announcer.present(node.Name, node.UID)

	// 2. Judge its health by its last sign of life.
	health := c.healthOf(node)
	verdict := c.judge(node, health, now)

	// 3. If it has been silent for too long: may that silence be trusted?
	if verdict.silent {
		verdict, err = c.silence.prove(ctx, node, health, now)
	}

	// 4. If so, write that it is Unknown.
	if verdict.silent {
		node, verdict.recheck, err = c.writeUnknown(ctx, node)
	}

	// 5. Count it in its zone, which may concern others.
	now = c.clock.Now() // a write may take long, and a taint tells when it was added
	c.wake(c.zones.put(name, zoneOf(node), memberOf(node), now), now)

	// 6. Queue its pods if it is Unknown.
	confirmed := c.confirmation.done.Load()
	c.pods.follow(node, confirmed)

	// 7. Write its taints and labels.
	taintRecheck, taintErr := c.writeTaints(ctx, node, confirmed, now)

	// 8. Say when to look again.
	return controller.Result{RequeueAfter: sooner(verdict.recheck, taintRecheck)}, errors.Join(err, taintErr)
}

// forget is the end of a node. The handler has dropped what was known of it, but a sync that was under way may have begun anew.
func (c *Controller) forget(name string, now time.Time) {
	c.silence.forget(name)
	c.writer.forget(name, "")
	c.wake(c.zones.drop(name, now), now)
	c.pods.gone(name)
	c.announcer.gone(name)
}

// healthOf returns what is known about a node. Its state is taken in only if no handler has come to the node yet.
func (c *Controller) healthOf(node *corev1.Node) nodeHealth {
	if h, ok := c.health.of(node.Name, node.UID); ok {
		return h
	}
	return c.silence.observeNode(node)
}

// judge says whether a node has been silent for too long by what is known about it. What is Unknown already only its kubelet can change.
func (c *Controller) judge(node *corev1.Node, h nodeHealth, now time.Time) judgement {
	if readiness(node) == corev1.ConditionUnknown {
		return judgement{}
	}
	j := judge(h.heartbeat, h.judged, readiness(node) != "", c.cfg, now)
	if !j.silent && h.judged.IsZero() {
		c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.judged = now })
	}
	return j
}

// writeUnknown sets the conditions of a silent node to Unknown. The node is read live, because a cached one is trimmed and because
// the status it shows may be a last-moment sign of life; the resource version of that read guards the write. It returns the newest state of the
// node that is known, ours included, and when to judge it again, zero if only an event can change the answer.
func (c *Controller) writeUnknown(ctx context.Context, node *corev1.Node) (*corev1.Node, time.Duration, error) {
	live, err := c.writer.read(ctx, node)
	if err != nil || live == nil {
		return node, 0, err
	}
	now := c.clock.Now()
	h := c.health.node(live, time.Time{}, now)
	if !h.judge(c.cfg, now).silent {
		return live, c.silence.alive(live, now), nil
	}
	conditions, changed := unknownConditions(live, now)
	if !changed {
		return live, 0, nil
	}
	live.Status.Conditions = conditions
	written, err := c.writer.updateStatus(ctx, live)
	if written == nil {
		return node, 0, err
	}
	silent := now.Sub(h.heartbeat.seen)
	klog.FromContext(ctx).V(2).Info("Node is silent, set its conditions to Unknown", "silent", silent, "was", h.ready)
	c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.setUnknown(written.ResourceVersion, now) })
	if h.ready != "" {
		c.announcer.notReady(node.Name, node.UID)
	}
	return written, 0, nil
}

// writeTaints gives a node the taints and labels it should have, in one patch. It returns when to look again, zero if not by itself.
func (c *Controller) writeTaints(ctx context.Context, node *corev1.Node, confirmed bool, now time.Time) (time.Duration, error) {
	want, granted, wait := c.noExecute(node, confirmed, now)
	taints, changed := desiredTaints(node, want, metav1.NewTime(now))
	labels := missingLabels(node.Labels)
	if !changed && labels == nil {
		return wait, nil
	}
	written, err := c.writer.patch(ctx, node, taints, labels)
	if written == nil {
		if granted {
			c.wake(c.zones.refund(node.Name, outcome.FromError(err)), c.clock.Now())
		}
		return 0, err
	}
	klog.FromContext(ctx).V(2).Info("Changed taints or labels of node", "taints", taints, "labels", labels)
	if granted {
		c.metrics.evictions.WithLabelValues(zoneOf(node)).Inc()
	}
	return wait, nil
}

// noExecute decides about a node's NoExecute taints. The zone is asked last, when nothing else speaks against a taint; granted
// tells that it has spent a token.
func (c *Controller) noExecute(node *corev1.Node, confirmed bool, now time.Time) (want noExecute, granted bool, wait time.Duration) {
	ready := readiness(node)
	if !confirmed && ready != corev1.ConditionTrue {
		return noExecute{keep: true}, false, 0 // the zones may not be as the cache shows them; once it is confirmed, all nodes are looked at
	}
	want = noExecuteWanted(ready, c.zones.isStopped())
	if !needsToken(node.Spec.Taints, want) {
		c.wake(c.zones.withdraw(node.Name), now)
		return want, false, 0
	}
	h, _ := c.health.of(node.Name, "")
	exhausted := h.isExhausted(c.cfg)
	if why := c.silence.suspended(exhausted, now); why != causeNone {
		return noExecute{keep: true}, false, why.recheck()
	}
	granted, wait, e := c.zones.ask(node.Name, exhausted, c.lagging(now), now)
	c.wake(e, now)
	if !granted {
		return noExecute{keep: true}, false, wait
	}
	return want, true, 0
}

// lagging tells which nodes that count as Ready may not be so.
func (c *Controller) lagging(now time.Time) func(string) bool {
	return func(name string) bool {
		h, ok := c.health.of(name, "")
		return ok && h.isLagging(c.cfg, now)
	}
}

// sooner is the shorter of two waits; zero is no wait at all.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
