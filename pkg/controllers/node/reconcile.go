package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
)

// When to look again at a node that could not be settled.
const (
	conflictRetry  = 20 * time.Millisecond  // somebody else wrote the node: as upstream's first retry
	staleRecheck   = 250 * time.Millisecond // most caches are behind for milliseconds
	blindRecheck   = 5 * time.Second        // recovery gives a whole grace period, so nothing is urgent
	confirmRecheck = 100 * time.Millisecond // the comparison at the start of a term is under way
)

// reconcile brings one node's conditions, taints and labels in line with what is known about it. An error means that something
// could not be done; all that could be was done.
func (c *Controller) reconcile(ctx context.Context, name string) (controller.Result, error) {
	now := c.clock.Now()
	defer func() { c.metrics.updateSeconds.Observe(c.clock.Since(now).Seconds()) }()
	node, ok := c.nodes.Get(cache.ObjectName{Name: name})
	if !ok {
		c.forget(name, now)
		return controller.Result{}, nil
	}
	node, err := c.newest(ctx, node)
	if err != nil || node == nil {
		return controller.Result{}, err
	}
	c.introduce(node)
	node, again, judgeErr := c.examine(ctx, node, now)
	now = c.clock.Now() // a write may take long, and a taint tells when it was added
	c.wake(c.zones.put(name, zoneOf(node), memberOf(node), now), now)
	c.follow(node)
	wait, taintErr := c.settle(ctx, node, now)
	return controller.Result{After: sooner(again, wait)}, errors.Join(judgeErr, taintErr)
}

// newest returns the cached node, or a live one if the cache is known to be behind: it does not show our own last write, or nothing
// newer than what a write was refused for. Nil is a node that is gone.
func (c *Controller) newest(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	r, ok := c.health.get(node.Name)
	if !ok || r.uid != node.UID || !outdated(node.ResourceVersion, r) {
		return node, nil
	}
	return c.readNode(ctx, node)
}

func outdated(version string, r nodeHealth) bool {
	return r.written != "" && !reached(version, r.written) || r.refused != "" && reached(r.refused, version)
}

// conflict notes that a node was too old to be written and returns when to try again.
func (c *Controller) conflict(node *corev1.Node) (wait time.Duration) {
	c.health.change(node.Name, node.UID, func(r *nodeHealth) {
		r.refused = node.ResourceVersion
		wait = afterConflicts(conflictRetry, r.conflicts)
		r.conflicts++
	})
	return wait
}

// afterConflicts is the wait after n conflicts and one more: first for the first five, because another writer is done soon, then doubled
// each time. What goes on refusing is no other writer.
func afterConflicts(first time.Duration, n int) time.Duration {
	wait := first
	for ; n >= 5 && wait < maxBackoff; n-- {
		wait *= 2
	}
	return min(wait, maxBackoff)
}

// readNode reads a node live. Nil is a node that is gone, or another one of the name: its events will come.
func (c *Controller) readNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, c.answerTime())
	defer cancel()
	live, err := c.reads.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	now := c.clock.Now()
	if err != nil && !apierrors.IsNotFound(err) {
		c.visibility.failed(reading("node", node.Name), err, now)
		return nil, fmt.Errorf("read node: %w", err)
	}
	c.visibility.readSucceeded(reading("node", node.Name), now)
	if err != nil || live.UID != node.UID {
		return nil, nil
	}
	return live, nil
}

// forget is the end of a node. Its record was dropped by the handler, but a judgement that was under way may have begun a new one.
func (c *Controller) forget(name string, now time.Time) {
	c.health.forget(name, "")
	c.visibility.forget(name)
	c.wake(c.zones.drop(name, now), now)
	c.marks.end(name)
	if uid := c.acquaintance.part(name); uid != "" {
		c.tellRemoving(name, uid)
	}
}

func (c *Controller) introduce(node *corev1.Node) {
	isNew, before := c.acquaintance.meet(node.Name, node.UID)
	if isNew && before != "" {
		c.tellRemoving(node.Name, before)
	}
	if isNew {
		c.tellRegistered(node.Name, node.UID)
	}
}

// record returns what is known about a node. Handlers tell of each state once; here a state is taken in only if they have not
// come to the node yet, because an old state read twice would look like a new heartbeat.
func (c *Controller) record(node *corev1.Node) nodeHealth {
	if r, ok := c.health.get(node.Name); ok && r.uid == node.UID {
		return r
	}
	return c.observeNode(node)
}

// examine judges a node and posts Unknown for one that has been silent for too long. It returns the newest state of the node that
// is known, ours included, and when to judge again, zero if only an event can change the answer.
func (c *Controller) examine(ctx context.Context, node *corev1.Node, now time.Time) (*corev1.Node, time.Duration, error) {
	r := c.record(node)
	j := judge(r.heartbeat, r.judged, readiness(node) != "", c.cfg, now)
	switch {
	case readiness(node) == corev1.ConditionUnknown:
		return node, 0, nil // only its kubelet can change that
	case !j.silent:
		if r.judged.IsZero() {
			c.judged(node, now)
		}
		return node, j.recheck, nil
	}
	if why := c.suspension(r.heartbeat.isExhausted(c.cfg.MonitorGracePeriod), now); why != causeNone {
		c.metrics.suppressed.WithLabelValues(suppressions[why]).Inc()
		return node, rechecks[why], nil
	}
	silent, err := c.confirmSilence(ctx, node, r.due(c.cfg))
	if err != nil {
		c.metrics.suppressed.WithLabelValues(suppressedUnreachable).Inc()
		return node, 0, err
	}
	if !silent {
		return node, c.alive(node), nil
	}
	// An answer that was asked for before an outage and came after it proves nothing: kubelets have not had their time yet.
	if why := c.suspension(r.heartbeat.isExhausted(c.cfg.MonitorGracePeriod), c.clock.Now()); why != causeNone {
		c.metrics.suppressed.WithLabelValues(suppressions[why]).Inc()
		return node, rechecks[why], nil
	}
	return c.postUnknown(ctx, node)
}

// What a suspension means for a node whose grace has ended: how it is counted and when to look again.
var (
	suppressions = map[cause]string{causeBlind: suppressedBlind, causeStale: suppressedStale}
	rechecks     = map[cause]time.Duration{causeBlind: blindRecheck, causeStale: staleRecheck}
)

// suspension says why no verdict may be passed and no node tainted NoExecute at now; see visibility.suspended for exhausted.
func (c *Controller) suspension(exhausted bool, now time.Time) cause {
	c.visibility.caughtUp(c.leases.Version())
	return c.visibility.suspended(exhausted, c.cfg.MonitorPeriod, now)
}

// alive is the end of a judgement by a live read that showed a sign of life. It returns when to judge again.
func (c *Controller) alive(node *corev1.Node) time.Duration {
	now := c.clock.Now()
	c.metrics.suppressed.WithLabelValues(suppressedAlive).Inc()
	c.judged(node, now)
	r := c.record(node)
	return max(0, r.due(c.cfg).Sub(now)) + deadlineSlack
}

func (c *Controller) judged(node *corev1.Node, now time.Time) {
	c.health.change(node.Name, node.UID, func(r *nodeHealth) { r.judged = now })
}

// postUnknown sets the conditions of a silent node to Unknown. The node is read live, because a cached one is trimmed and because
// the status it shows may be a last-moment sign of life; the resource version of that read guards the write.
func (c *Controller) postUnknown(ctx context.Context, node *corev1.Node) (*corev1.Node, time.Duration, error) {
	live, err := c.readNode(ctx, node)
	if err != nil || live == nil {
		return node, 0, err
	}
	now := c.clock.Now()
	r := c.health.node(live, time.Time{}, now)
	if !judge(r.heartbeat, r.judged, r.ready != "", c.cfg, now).silent {
		return live, c.alive(live), nil
	}
	conditions, changed := unknownConditions(live, now)
	if !changed {
		return live, 0, nil
	}
	was := r.ready
	live.Status.Conditions = conditions
	written, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, live, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return node, 0, nil
	case apierrors.IsConflict(err):
		return node, c.conflict(live), nil
	case err != nil:
		c.visibility.failed(writing("node", node.Name), err, c.clock.Now())
		return node, 0, fmt.Errorf("set node status: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Node is silent, set its conditions to Unknown", "silent", now.Sub(r.heartbeat.seen), "was", was)
	c.metrics.heartbeatAge.Observe(now.Sub(r.heartbeat.seen).Seconds())
	c.wrote(written, func(r *nodeHealth) { r.setUnknown(written.ResourceVersion, now) })
	if was != "" {
		c.tellNotReady(node.Name, node.UID)
	}
	return written, 0, nil
}

// wrote notes a node as our write has left it.
func (c *Controller) wrote(node *corev1.Node, edit func(*nodeHealth)) {
	c.visibility.wrote(writing("node", node.Name), c.clock.Now())
	c.health.change(node.Name, node.UID, func(r *nodeHealth) {
		r.written, r.refused, r.conflicts = node.ResourceVersion, "", 0
		edit(r)
	})
}

// wake queues the nodes that a change of zones concerns.
func (c *Controller) wake(e effects, now time.Time) {
	if e.resumed { // nodes that were alive when everything stopped are given a new start
		c.health.changeAll(func(_ string, r *nodeHealth) {
			if r.ready == corev1.ConditionTrue {
				r.heartbeat = r.heartbeat.alive(now)
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

func memberOf(node *corev1.Node) member {
	_, excluded := node.Labels[excludeLabel]
	return member{counted: !excluded, ready: readiness(node) == corev1.ConditionTrue}
}

// sooner is the shorter of two waits; zero is no wait at all.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
