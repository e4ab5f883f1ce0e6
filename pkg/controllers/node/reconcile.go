package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// suspendedRecheck is the time until the next check of a silent node while the API server is unreachable.
const suspendedRecheck = 5 * time.Second

// maxPatchTries bounds the patches of one sync.
const maxPatchTries = 2

// reconcile updates the conditions, taints and labels of one node. A failed read in step 1 ends the sync. After an
// error in a later step the other steps follow.
func (c *Controller) reconcile(ctx context.Context, name string) (controller.Result, error) {
	begun := c.Clock.Now()
	now := begun
	defer func() { c.metrics.updateSeconds.Observe(c.Clock.Since(begun).Seconds()) }()

	// 1. Read the node, live if the cache does not show the last write or conflict.
	cached, ok := c.nodes.Get(cache.ObjectName{Name: name})
	if !ok {
		c.forget(name, now)
		return controller.Result{}, nil
	}
	node := cached
	health, known := c.health.get(cached.Name, cached.UID)
	if !known {
		health = c.observeNode(cached)
	}
	if health.expectedVersion != "" && rv.Newer(health.expectedVersion, cached.ResourceVersion) {
		live, err := c.readNode(ctx, cached)
		if err != nil || live == nil {
			return controller.Result{}, err
		}
		node = live
	}
	c.reportRegistered(node.Name, node.UID)

	// 2. Check the deadline of the last sign of life.
	check := c.checkDeadline(node, health, now)
	var err error

	// 3. Confirm silence with a live read, while the API server is reachable.
	if check.silent {
		check, err = c.confirmSilence(ctx, node, health, now)
	}

	// 4. Set the conditions of a silent node to Unknown.
	if check.silent {
		node, check.recheck, err = c.writeUnknown(ctx, node)
	}

	// 5. Count the node in its zone.
	now = c.Clock.Now() // a write may take long
	c.zones.setNode(name, placeOf(node), now)

	// 6. Queue the pods of a silent node. A node that was Unknown when the term began may have recovered, so the
	// node cache must be confirmed first. reconcilePod reads the cached node, so the pods wait until the watch shows
	// Unknown.
	confirmed := c.confirmed.Load()
	if confirmed {
		c.enqueuePodsOf(cached)
	}

	// 7. Write taints and labels.
	taintRecheck, taintErr := c.writeTaints(ctx, node, confirmed, now)
	return controller.Result{RequeueAfter: timing.MinPositive(check.recheck, taintRecheck)}, errors.Join(err, taintErr)
}

// forget drops the state of a deleted node. The handler has done so too, but a running sync may have added
// state later.
func (c *Controller) forget(name string, now time.Time) {
	c.health.forget(name, "")
	c.downtimes.Delete(name)
	c.zones.removeNode(name, now)
	if uid, known := c.registered.LoadAndDelete(name); known {
		c.reportRemoved(name, uid.(types.UID))
	}
}

// observeNode records the state of a node. Each state must be recorded once: an older state would look like a
// new heartbeat.
func (c *Controller) observeNode(node *corev1.Node) nodeHealth {
	return c.health.observe(node, c.cachedRenewTime, c.Clock.Now())
}

// checkDeadline checks the deadline of a node. Only the kubelet can end the state Unknown.
func (c *Controller) checkDeadline(node *corev1.Node, h nodeHealth, now time.Time) deadlineCheck {
	if readiness(node) == corev1.ConditionUnknown {
		return deadlineCheck{}
	}
	h.ready = readiness(node)
	check := h.evaluateDeadline(c.cfg, now)
	if !check.silent && h.checkedAt.IsZero() {
		c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.checkedAt = now })
	}
	return check
}

// confirmSilence reads the Lease of a silent node live. The node stays as it is while the API server is unreachable.
func (c *Controller) confirmSilence(ctx context.Context, node *corev1.Node, h nodeHealth, now time.Time) (deadlineCheck, error) {
	extraSpent := h.hasSpentExtra(c.cfg)
	if c.api.isSuspended(extraSpent, now) {
		return c.holdBack(), nil
	}
	if err := c.readLease(ctx, node.Name); err != nil {
		c.metrics.suppressed.WithLabelValues(suppressedReadFailed).Inc()
		return deadlineCheck{}, err
	}
	// The state of the API server comes before the health: an outage that ended during the read has restarted
	// the grace period by then.
	now = c.Clock.Now()
	suspended := c.api.isSuspended(extraSpent, now)
	h, ok := c.health.get(node.Name, node.UID)
	switch {
	case !ok: // events of a deletion follow
		return deadlineCheck{}, nil
	case !h.evaluateDeadline(c.cfg, now).silent:
		return deadlineCheck{recheck: c.recordAlive(node, now)}, nil
	case suspended:
		return c.holdBack(), nil
	}
	return deadlineCheck{silent: true}, nil
}

func (c *Controller) holdBack() deadlineCheck {
	c.metrics.suppressed.WithLabelValues(suppressedOutage).Inc()
	return deadlineCheck{recheck: suspendedRecheck}
}

// recordAlive records that a live read showed a sign of life of a silent node. It returns the time until the
// next check.
func (c *Controller) recordAlive(node *corev1.Node, now time.Time) (recheck time.Duration) {
	c.metrics.suppressed.WithLabelValues(suppressedAlive).Inc()
	c.health.change(node.Name, node.UID, func(h *nodeHealth) {
		h.checkedAt = now
		recheck = max(0, h.due(c.cfg).Sub(now)) + deadlineSlack
	})
	return recheck
}

// writeUnknown sets the conditions of a silent node to Unknown. The node is read live, because cached nodes
// are trimmed and the status may show a late sign of life. writeUnknown returns the newest known state of the
// node and the time until the next check.
func (c *Controller) writeUnknown(ctx context.Context, node *corev1.Node) (*corev1.Node, time.Duration, error) {
	live, err := c.readNode(ctx, node)
	if err != nil {
		c.metrics.suppressed.WithLabelValues(suppressedReadFailed).Inc()
	}
	if err != nil || live == nil {
		return node, 0, err
	}
	now := c.Clock.Now()
	h := c.health.observe(live, c.cachedRenewTime, now)
	if !h.evaluateDeadline(c.cfg, now).silent {
		return live, c.recordAlive(live, now), nil
	}
	if !setUnknown(live, now) {
		return live, 0, nil
	}
	written, err := c.updateStatus(ctx, live)
	if err != nil {
		return node, 0, err
	}
	silent := now.Sub(h.heartbeat.seen)
	klog.FromContext(ctx).V(2).Info("Node is silent, set its conditions to Unknown", "silent", silent, "from", h.ready)
	c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.checkedAt = now })
	if h.ready != "" {
		c.sendEvent(node.Name, node.UID, eventNotReady, "Node %s status is now: %s", node.Name, eventNotReady)
	}
	return written, 0, nil
}

// writeTaints writes taints and labels in one patch. It returns the time until the next check. After a conflict the
// patch is computed again from a live read, unless Ready has changed.
func (c *Controller) writeTaints(ctx context.Context, node *corev1.Node, confirmed bool, now time.Time) (time.Duration, error) {
	want, granted, wait := c.noExecute(node, confirmed, now)
	for try := 1; ; try++ {
		taints, changed := desiredTaints(node, want, metav1.NewTime(now))
		labels := missingLabels(node.Labels)
		if !changed && len(labels) == 0 {
			return wait, nil
		}
		err := c.patchNode(ctx, node, taints, labels)
		if changed && len(labels) > 0 && outcome.FromError(err) == outcome.Rejected { // a policy may protect labels
			clear(labels) // not nil, which would remove all labels
			err = c.patchNode(ctx, node, taints, labels)
		}
		if apierrors.IsConflict(err) && try < maxPatchTries {
			live, readErr := c.readNode(ctx, node)
			if readErr != nil || live == nil {
				return 0, readErr
			}
			if readiness(live) != readiness(node) {
				// The event of the change queues the node. The recheck is for events that a relist hides or that are
				// late: until the cache shows the change, each sync reads live.
				c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.expectedVersion = live.ResourceVersion })
				return c.cfg.MonitorGracePeriod, nil
			}
			node = live
			continue
		}
		if err != nil {
			return 0, err
		}
		klog.FromContext(ctx).V(2).Info("Changed taints or labels of node", "taints", taints, "labels", labels)
		if granted {
			c.metrics.evictions.WithLabelValues(zoneOf(node)).Inc()
		}
		return wait, nil
	}
}

// noExecute decides about the NoExecute taints of a node. granted reports that the zone has spent a token.
func (c *Controller) noExecute(node *corev1.Node, confirmed bool, now time.Time) (want noExecute, granted bool, wait time.Duration) {
	ready := readiness(node)
	if !confirmed && ready != corev1.ConditionTrue {
		return noExecute{keep: true}, false, 0 // all nodes are queued after the confirmation
	}
	want = noExecuteWanted(ready, c.zones.isStopped())
	if !needsToken(node.Spec.Taints, want) {
		c.zones.withdraw(node.Name, now)
		return want, false, 0
	}
	h, _ := c.health.get(node.Name, "")
	extraSpent := h.hasSpentExtra(c.cfg)
	if c.api.isSuspended(extraSpent, now) {
		return noExecute{keep: true}, false, suspendedRecheck
	}
	granted, wait = c.zones.acquire(node.Name, extraSpent, now)
	if !granted {
		return noExecute{keep: true}, false, wait
	}
	return want, true, 0
}
