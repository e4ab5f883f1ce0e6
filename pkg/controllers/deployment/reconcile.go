package deployment

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/selectors"
)

// reconcile brings one Deployment a step closer to its spec.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	// 1. How far the caches have come. What is read after that is at least that new.
	at := controller.VersionsOf(c.deps.Deployments, c.deps.ReplicaSets)

	// 2. The Deployment.
	d, ok := c.deps.Deployments.Get(key)
	if !ok {
		c.memories.drop(key) // its ReplicaSets are the garbage collector's
		return controller.Result{}, nil
	}
	known := c.memories.of(key, d.UID)
	t := task{key: key, now: c.deps.Clock.Now(), at: at, d: d, ledger: known.ledger, throttle: known.throttle}
	var err error
	if t.selector, err = selectors.Of(d.Spec.Selector); err != nil {
		return c.unselected(ctx, t, err)
	}

	c.memories.note(t, c.finished(d, d.Status), false) // also of a sync that fails

	// 3. The barrier: do the caches show what this process wrote?
	switch barrier := &t.ledger.barrier; barrier.State(at, t.now) {
	case controller.Behind:
		barrier.Wait(t.now)
		return controller.Result{RequeueAfter: controller.BarrierRecheck}, nil
	case controller.Overdue:
		barrier.Wait(t.now)
		klog.FromContext(ctx).V(2).Info("Caches do not show our own writes, reading live",
			"deployments", at.Of(c.deps.Deployments.Resource()), "replicaSets", at.Of(c.deps.ReplicaSets.Resource()))
		return ended(c.step(ctx, t, readOverdue))
	case controller.Open:
		barrier.Clear(t.now)
	}
	return ended(c.step(ctx, c.read.cached(t), ""))
}

// step is the rest of a sync. It decides on the ReplicaSets that the task has from the cache, unless there is a reason for a live read from the start.
func (c *Controller) step(ctx context.Context, t task, liveReason string) (controller.Result, error) {
	// 4. Writes of sizes that were not answered are sent again: until it is known what became of them nothing else is decided.
	if wait, err := c.writes.settle(ctx, t); wait > 0 || err != nil {
		c.metrics.held.WithLabelValues(string(holdResizeUnanswered)).Inc()
		return controller.Result{RequeueAfter: wait}, err
	}

	// 5. Claim, adopt and release, and plan, on the cache.
	var judged decision
	var err error
	if liveReason == "" {
		if judged, err = c.claimAndPlan(ctx, t); err != nil {
			return controller.Result{}, err
		}
		liveReason = c.doubts(t, judged)
	}

	// 6. If that will not do: once more on a live read.
	again := judged.again
	if liveReason != "" {
		if t, err = c.read.live(ctx, t, liveReason); err != nil {
			return controller.Result{}, err
		}
		if judged, err = c.claimAndPlan(ctx, t); err != nil {
			return controller.Result{}, err
		}
	}
	again = controller.MinPositive(again, judged.again)

	// 7. Create and resize.
	a := c.writes.apply(ctx, t, judged.plan)
	for _, why := range a.held {
		c.metrics.held.WithLabelValues(string(why)).Inc()
	}
	switch {
	case stopped(a.err):
		return controller.Result{}, a.err
	case a.moved && a.err == nil:
		return controller.Result{}, errMoved
	}

	// 8. Write the status.
	status := judged.pass.status(a.result)
	statusAgain, statusErr := c.statuses.write(ctx, t, status, judged.pass.revision(a.result))
	moved := a.result.created != nil || progressed(t.d.Status, status) || slices.ContainsFunc(a.result.changes, func(c change) bool { return c.from != c.to })
	c.memories.note(t, c.finished(t.d, status), moved)

	// 9. Clean up.
	var pruneErr error
	if statusErr == nil && a.err == nil {
		pruneErr = c.writes.prune(ctx, judged.plan.delete)
	}

	// 10. When to look again, if no event comes, also after a failure.
	again = controller.MinPositive(again, judged.plan.again, a.again, judged.pass.untilTimeout(status, a.result), statusAgain, t.ledger.decided(t.now))
	if t.ledger.barrier.Unseen() {
		again = controller.MinPositive(again, controller.BarrierPatience) // it is the events of our own writes that wake us, and they may be what is missing
	}
	return controller.Result{RequeueAfter: again}, errors.Join(a.err, statusErr, pruneErr)
}

// decision is what a sync makes of the ReplicaSets that it has read.
type decision struct {
	pass  pass
	plan  plan
	again time.Duration // when to try what is held back; 0: nothing is
}

// claimAndPlan finds out which ReplicaSets are ours, adopts and releases what is to be, and plans.
func (c *Controller) claimAndPlan(ctx context.Context, t task) (decision, error) {
	mine, again, err := c.owners.adoptAndRelease(ctx, t)
	if err != nil {
		return decision{}, err
	}
	p := passOf(t.d, c.read.observed(t, mine), t.now)
	p.facts = c.facts(t, p.found, &again)
	return decision{pass: p, plan: p.plan(), again: again}, nil
}

// facts are what is known besides the Deployment and its ReplicaSets. found tells that there is one of the present template. again is brought forward to
// when what is held back may go on.
func (c *Controller) facts(t task, found bool, again *time.Duration) facts {
	f := facts{terminatingReplicas: c.cfg.TerminatingReplicas}
	if len(t.ledger.creates) > 0 {
		f.attempted, f.reserved = t.ledger.reserved(nextName(t.d))
	}
	if found {
		return f
	}
	if c.deps.Namespaces.Terminating(t.d.Namespace) {
		f.holdCreate = holdTerminating // its successor wakes us
		return f
	}
	if t.throttle.modified.wait(t.now) > 0 {
		if wait := t.throttle.modifiedNamed(nextName(t.d)).wait(t.now); wait > 0 {
			f.holdCreate, *again = holdCreateBackoff, controller.MinPositive(*again, wait)
		}
	}
	return f
}

// doubts says why a decision on the cache must be made again on a live read; empty: it stands. It is not to be trusted if it is the first of
// the term that writes anything, and the cache may not show yet all that an earlier manager saw and wrote.
func (c *Controller) doubts(t task, d decision) string {
	if t.ledger.doubted {
		return readNameTaken
	}
	first := !t.ledger.verified && !c.baseline.ReachedBy(t.at)
	if first && (d.plan.writes() || c.statuses.changes(t, d.pass.status(d.plan.result), d.pass.revision(d.plan.result))) {
		return readFirstWrite
	}
	return ""
}

// unselected ends the sync of a Deployment whose selector selects nothing, or everything. Only a change can mend it.
func (c *Controller) unselected(ctx context.Context, t task, err error) (controller.Result, error) {
	if !errors.Is(err, selectors.ErrAll) {
		utilruntime.HandleErrorWithContext(ctx, err, "Deployment has an invalid selector")
		return controller.Result{}, nil
	}
	c.deps.Recorder.Eventf(t.d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
	status := *t.d.Status.DeepCopy()
	status.ObservedGeneration = t.d.Generation
	_, err = c.statuses.write(ctx, t, status, "")
	return controller.Result{}, err
}

// ended is the answer of a sync. That something has changed meanwhile is no failure.
func ended(result controller.Result, err error) (controller.Result, error) {
	if errors.Is(err, live.ErrReplaced) || errors.Is(err, errMoved) {
		return controller.Result{RequeueAfter: controller.BarrierRecheck}, nil
	}
	return result, err
}

// finished reports whether no rollout is under way, or none that could go on.
func (c *Controller) finished(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	return d.DeletionTimestamp != nil || d.Spec.Paused || c.deps.Namespaces.Terminating(d.Namespace) || rolledOut(d, status)
}

// rolledOut reports whether the status shows the end of a rollout. Pods that become unavailable later do not begin another one. Without a deadline there is no
// condition, and the rollout ends when all pods are updated.
func rolledOut(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	if status.ObservedGeneration < d.Generation || status.Replicas != status.UpdatedReplicas {
		return false
	}
	if (pass{d: d}).deadline() == 0 {
		return int(status.UpdatedReplicas) == orOne(d.Spec.Replicas)
	}
	c := conditions{list: status.Conditions}
	has, _ := c.get(appsv1.DeploymentProgressing)
	return has.Reason == reasonComplete || complete(d, status)
}

// nextName is the name that the ReplicaSet of the present template would get.
func nextName(d *appsv1.Deployment) string {
	return replicaSetName(d.Name, templateHash(*d.Spec.Template.DeepCopy(), d.Status.CollisionCount))
}

// task is what one sync works on. It is a value: a live read makes another of it. What lasts beyond the sync is in its ledger and its throttle.
type task struct {
	key      cache.ObjectName
	now      time.Time           // when the sync began
	at       controller.Versions // that the caches had reached before anything was read
	d        *appsv1.Deployment  // from the cache, or from a live read; not to be changed
	selector labels.Selector
	sets     []*appsv1.ReplicaSet // ours and nobody's
	live     bool                 // d and sets come from a live read
	ledger   *ledger
	throttle *throttle
}

func (t task) selects(rs *appsv1.ReplicaSet) bool { return t.selector.Matches(labels.Set(rs.Labels)) }
