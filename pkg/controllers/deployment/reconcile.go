package deployment

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/selectors"
)

// reconcile makes all changes of one Deployment that keep the bounds.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	// 1. Read the versions of the caches before the objects: a later read could return versions newer than
	//    the objects.
	versions := controller.VersionsOf(c.deployments, c.replicaSets)

	// 2. Read the Deployment.
	d, ok := c.deployments.Get(key)
	if !ok {
		c.states.Delete(key) // its ReplicaSets are the garbage collector's
		return controller.Result{}, nil
	}
	st := c.states.For(key, d.UID)
	t := syncState{key: key, now: c.Clock.Now(), versions: versions, d: d, expectations: &st.expectations, memory: &st.memory}
	var err error
	if t.selector, err = selectors.ParseSelector(d.Spec.Selector); err != nil {
		return c.reportInvalidSelector(ctx, t, err)
	}
	c.states.Update(key, func(s *state) { s.record(t, c.finished(d, d.Status), false) }) // also if the sync fails
	return c.sync(ctx, t)
}

// sync continues a sync after the read of the Deployment.
func (c *Controller) sync(ctx context.Context, t syncState) (controller.Result, error) {
	// 3. Resolve changes with an unknown outcome. Nothing else is decided before.
	if wait, err := c.settleChanges(ctx, t); wait > 0 || err != nil {
		c.metrics.deferred.WithLabelValues(string(deferResizeUnknown)).Inc()
		return controller.Result{RequeueAfter: wait}, err
	}

	// 4. Load and claim the ReplicaSets and plan, on the caches or a live read.
	t, p, err := c.loader.LoadConsistent(ctx, &t.expectations.barrier, t.versions, t.now, t)
	if err != nil {
		return controller.Result{}, err
	}

	// 5. Create and change ReplicaSets.
	a := c.applyPlan(ctx, t, p)
	for _, reason := range a.deferred {
		c.metrics.deferred.WithLabelValues(string(reason)).Inc()
	}
	switch {
	case isCanceled(a.err):
		return controller.Result{}, a.err
	case a.outdated && a.err == nil:
		return controller.Result{}, controller.ErrOutdated
	}

	// 6. Write the status.
	status := p.input.newStatus(a.result)
	statusDelay, statusErr := c.writeStatus(ctx, t, status, p.input.newRevision(a.result))
	progress := a.result.created != nil || progressed(t.d.Status, status) ||
		slices.ContainsFunc(a.result.changes, func(c change) bool { return c.from != c.to })
	c.states.Update(t.key, func(s *state) { s.record(t, c.finished(t.d, status), progress) })

	// 7. Delete old ReplicaSets.
	var deleteErr error
	if statusErr == nil && a.err == nil {
		deleteErr = c.deleteHistory(ctx, p.delete)
	}

	// 8. Requeue, also after a failure.
	requeueAfter := timing.MinPositive(p.requeueAfter, a.requeueAfter, statusDelay, p.input.untilTimeout(status, a.result),
		t.memory.ownership.Remaining(t.now), t.expectations.nextDeadline(t.now))
	if t.expectations.barrier.Pending() {
		// The caches may have missed events.
		requeueAfter = timing.MinPositive(requeueAfter, controller.ConsistencyTimeout)
	}
	return controller.Result{RequeueAfter: requeueAfter}, errors.Join(a.err, statusErr, deleteErr)
}

// claimAndPlan adopts and releases ReplicaSets, and plans.
func (c *Controller) claimAndPlan(ctx context.Context, t syncState) (p plan, err error) {
	owned, err := c.claim(ctx, t)
	if err != nil {
		return p, err
	}
	in := newRolloutInput(t.d, c.observe(t, owned), t.now)
	in.facts = c.facts(t, in.found)
	return in.makePlan(), nil
}

// facts returns the facts of a plan. found is true if the new ReplicaSet exists.
func (c *Controller) facts(t syncState, found bool) facts {
	f := facts{terminatingReplicas: c.cfg.TerminatingReplicas}
	if len(t.expectations.creates) > 0 {
		f.pendingNew, f.pendingOld = t.expectations.pendingPods(nextName(t.d))
	}
	switch {
	case found:
	case c.namespaces.Terminating(t.d.Namespace):
		f.createDeferred = deferTerminating // a new namespace of that name is an event
	case t.memory.modified.remaining(t.now) > 0:
		if f.untilCreate = t.memory.modifiedBackoff(nextName(t.d)).remaining(t.now); f.untilCreate > 0 {
			f.createDeferred = deferCreateBackoff
		}
	}
	return f
}

// changesCluster reports whether a plan writes anything, the status included.
func (c *Controller) changesCluster(t syncState, p plan) bool {
	return p.create != nil || len(p.changes) > 0 || len(p.delete) > 0 ||
		c.statusDiffers(t, p.input.newStatus(p.result), p.input.newRevision(p.result))
}

// needsConfirmation reports whether a live read can show the outcome of an unknown create.
func needsConfirmation(t syncState, _ plan) bool {
	final := func(c unknownCreate) bool { return !t.now.Before(c.until) }
	return slices.ContainsFunc(slices.Collect(maps.Values(t.expectations.creates)), final)
}

// reportInvalidSelector reports a selector that is invalid or selects all pods. Only a change of the spec helps.
func (c *Controller) reportInvalidSelector(ctx context.Context, t syncState, err error) (controller.Result, error) {
	if !errors.Is(err, selectors.ErrAll) {
		utilruntime.HandleErrorWithContext(ctx, err, "Deployment has an invalid selector")
		return controller.Result{}, nil
	}
	c.recorder.Eventf(t.d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
	status := *t.d.Status.DeepCopy()
	status.ObservedGeneration = t.d.Generation
	_, err = c.writeStatus(ctx, t, status, "")
	return controller.Result{}, err
}

// finished reports whether there is no rollout that could continue.
func (c *Controller) finished(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	return d.DeletionTimestamp != nil || d.Spec.Paused || c.namespaces.Terminating(d.Namespace) || rolledOut(d, status)
}

// rolledOut reports whether the status shows the end of a rollout. Pods that become unavailable later do not start
// another rollout. Without a deadline there is no condition, and the rollout ends when all pods are updated.
func rolledOut(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	if status.ObservedGeneration < d.Generation || status.Replicas != status.UpdatedReplicas {
		return false
	}
	if progressDeadline(d) == 0 {
		return int(status.UpdatedReplicas) == replicasOrOne(d.Spec.Replicas)
	}
	c := conditions{list: status.Conditions}
	has, _ := c.get(appsv1.DeploymentProgressing)
	return has.Reason == reasonComplete || isComplete(d, status)
}

// syncState is the input of one sync. It is a value; a live read returns another one.
type syncState struct {
	key          cache.ObjectName
	now          time.Time           // start of the sync
	versions     controller.Versions // of the caches, read before the objects
	d            *appsv1.Deployment  // read only
	selector     labels.Selector
	sets         []*appsv1.ReplicaSet // owned ReplicaSets and orphans
	expectations *expectations
	memory       *memory
}

func (t syncState) selects(rs *appsv1.ReplicaSet) bool {
	return t.selector.Matches(labels.Set(rs.Labels))
}
