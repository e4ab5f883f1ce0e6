package replicaset

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/selectors"
	"minikcm/pkg/controllers/internal/writelimit"
)

// reconcile changes the cluster towards the spec of one ReplicaSet.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	// 1. Read the versions before the objects: a later read could return versions newer than the objects.
	versions := controller.VersionsOf(c.pods, c.replicaSets)

	// 2. Read the ReplicaSet.
	rs, ok := c.replicaSets.Get(key)
	if !ok {
		c.states.Delete(key) // the garbage collector deletes its pods
		return controller.Result{}, nil
	}
	selector, err := selectors.ParseSelector(rs.Spec.Selector)
	if err != nil {
		// The API server rejects such selectors, and only a change of the object can repair one.
		utilruntime.HandleErrorWithContext(ctx, err, "ReplicaSet has an invalid selector")
		return controller.Result{}, nil
	}
	st := c.states.For(key, rs.UID)
	t := syncState{key: key, now: c.Clock.Now(), versions: versions, rs: rs, selector: selector, expectations: &st.expectations, backoffs: &st.backoffs}
	return c.sync(ctx, t)
}

func (c *Controller) sync(ctx context.Context, t syncState) (controller.Result, error) {
	// 3. Load the pods and plan, on the caches or on a live read.
	t, d, err := c.loader.LoadConsistent(ctx, &t.expectations.barrier, t.versions, t.now, t)
	if notReady, ok := errors.AsType[*controller.NotReadyError](err); ok {
		for _, missing := range notReady.Missing {
			c.metrics.staleSkips.WithLabelValues(missing.Group, missing.Resource).Inc()
		}
	}
	if err == writelimit.ErrCut { // without a failure beside it
		return controller.Result{RequeueAfter: controller.Immediately}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}

	// 4. Create or delete pods.
	a := c.apply(ctx, t, d)
	met := d.todo.missing == 0 || c.namespaces.Terminating(t.rs.Namespace) // no pod can be created there
	c.states.Update(t.key, func(s *state) { s.recordMatch(met, t.now) })
	if isCanceled(a.err) {
		return controller.Result{}, a.err
	}

	// 5. Write the status.
	claimed := d.claimed.withResults(t, a.created, a.deleted)
	statusDelay, err := c.writeStatus(ctx, t, claimed, a)

	// 6. Requeue, also after a failure, in case no event comes.
	requeueAfter := timing.MinPositive(t.backoffs.ownership.Remaining(t.now), a.requeueAfter, statusDelay,
		untilAvailable(t, claimed.owned, c.Clock.Now()))
	if t.expectations.barrier.Pending() {
		requeueAfter = timing.MinPositive(requeueAfter, controller.ConsistencyTimeout)
	}
	return controller.Result{RequeueAfter: requeueAfter}, errors.Join(a.err, err)
}

type decision struct {
	claimed claims
	todo    plan
}

// claimAndPlan sorts, adopts and releases pods, and plans creates and deletes.
func (c *Controller) claimAndPlan(ctx context.Context, t syncState) (d decision, err error) {
	d.claimed = claimPods(t.rs, t.selector, t.pods, t.expectations.deleted)
	if t.rs.DeletionTimestamp != nil {
		return d, nil
	}
	adopted, err := c.owners.AdoptAndRelease(ctx, t.rs, d.claimed.adopt, d.claimed.release, &t.backoffs.ownership, &t.expectations.barrier,
		func(n int, do func(int)) (int, error) { return c.slots.RunEach(ctx, t.key, t.deadline(), n, do) })
	if err != nil {
		return d, err
	}
	d.claimed.owned = append(d.claimed.owned, slices.DeleteFunc(adopted, func(pod *caches.Pod) bool { return !t.isOwned(pod) })...)
	d.todo = planReplicas(wantedReplicas(t.rs), d.claimed.owned, t.expectations.unconfirmed, burst)
	return d, nil
}

func (c *Controller) patchPod(ctx context.Context, pod *caches.Pod, body []byte) (*caches.Pod, error) {
	patched, err := c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	return c.pods.Trim(patched), nil
}

// changesCluster reports whether the decision creates or deletes pods, or changes counts of the status.
func (c *Controller) changesCluster(t syncState, d decision) bool {
	return d.todo.create > 0 || d.todo.deletes() || c.changesCounts(t, d.claimed)
}

// needsConfirmation reports whether a pod is needed again although its delete has an unknown outcome, and a live
// read can show that outcome.
func needsConfirmation(t syncState, d decision) bool {
	return d.todo.unconfirmedNeeded() > 0 && !t.expectations.confirmableAt().After(t.now)
}

// apply creates or deletes pods.
func (c *Controller) apply(ctx context.Context, t syncState, d decision) applyResult {
	if t.rs.DeletionTimestamp != nil {
		return applyResult{deferred: true}
	}
	var wait time.Duration
	if d.todo.unconfirmedNeeded() > 0 {
		wait = t.expectations.confirmableAt().Sub(t.now)
	}
	var a applyResult
	switch {
	case d.todo.deletes():
		a = c.deletePods(ctx, t, d.todo)
	case d.todo.create > 0:
		allowed, delay := c.allowedCreates(ctx, t, d.todo.missing, d.claimed.failed)
		wait = timing.MinPositive(wait, delay)
		if n := min(d.todo.create, allowed); n > 0 {
			a = c.create(ctx, t, n)
		} else {
			a.deferred = true
		}
	}
	a.requeueAfter = timing.MinPositive(a.requeueAfter, wait)
	return a
}

// untilAvailable returns the time until the next ready pod becomes available, or 0 if there is no such pod.
// Availability was computed at t.now, but the time is counted from now.
func untilAvailable(t syncState, active []*caches.Pod, now time.Time) (wait time.Duration) {
	minReady := t.rs.Spec.MinReadySeconds
	for _, pod := range active {
		switch {
		case !pod.IsReady() || pod.IsAvailable(minReady, t.now):
		case pod.Ready.Since.IsZero(): // without a known time
			wait = timing.MinPositive(wait, time.Duration(minReady)*time.Second)
		default:
			wait = timing.MinPositive(wait, max(pod.AvailableAt(minReady).Sub(now), controller.Immediately))
		}
	}
	return wait
}

// syncState is the input of one sync. It is a value: a live read returns another one. Lasting state is in
// expectations and backoffs.
type syncState struct {
	key          cache.ObjectName
	now          time.Time           // start of the sync
	versions     controller.Versions // of the caches, read before the objects
	rs           *appsv1.ReplicaSet  // read-only; from the cache or a live read
	selector     labels.Selector
	pods         []*caches.Pod // controlled by the ReplicaSet, and orphans
	expectations *expectations
	backoffs     *backoffs
}

func (t syncState) deadline() time.Time { return t.now.Add(syncLimit) }

// wantedReplicas returns spec.replicas, or 1 as the API server's default.
func wantedReplicas(rs *appsv1.ReplicaSet) int { return int(ptr.Deref(rs.Spec.Replicas, 1)) }

func (t syncState) selects(pod *caches.Pod) bool { return t.selector.Matches(labels.Set(pod.Labels)) }

// isOwned reports whether a pod counts as a replica.
func (t syncState) isOwned(pod *caches.Pod) bool {
	return pod.IsActive() && controls(t.rs, pod) && t.selects(pod)
}

// includes reports whether a pod is one of the pods that were read.
func (t syncState) includes(pod *caches.Pod) bool {
	return slices.ContainsFunc(t.pods, func(other *caches.Pod) bool { return other.UID == pod.UID })
}
