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

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/selectors"
)

// reconcile brings one ReplicaSet a step closer to its spec.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	// 1. How far the caches have come. What is read after that is at least that new.
	at := controller.VersionsOf(c.deps.Pods, c.deps.ReplicaSets)

	// 2. The ReplicaSet.
	rs, ok := c.deps.ReplicaSets.Get(key)
	if !ok {
		c.states.Delete(key) // its pods are the garbage collector's
		return controller.Result{}, nil
	}
	selector, err := selectors.Of(rs.Spec.Selector)
	if err != nil {
		// Nothing to retry: the API server admits no such selector, and only a change can mend it.
		utilruntime.HandleErrorWithContext(ctx, err, "ReplicaSet has an invalid selector")
		return controller.Result{}, nil
	}
	st := c.states.For(key, rs.UID)
	t := task{key: key, now: c.deps.Clock.Now(), at: at, rs: rs, selector: selector, ledger: &st.ledger, throttle: &st.throttle}
	return c.step(ctx, t)
}

// step is the rest of a sync.
func (c *Controller) step(ctx context.Context, t task) (controller.Result, error) {
	// 3. Load the pods and plan, on the caches or a live read.
	t, d, err := c.loader.LoadConsistent(ctx, &t.ledger.barrier, t.at, t.now, t)
	if err != nil {
		return c.ended(err)
	}

	// 4. Create or delete.
	a := c.apply(ctx, t, d)
	met := d.todo.missing == 0 || c.creator.namespaces.Terminating(t.rs.Namespace) // nothing can be created in a terminating namespace
	c.states.Update(t.key, func(s *state) { s.recordMatch(met, t.now) })
	if stopping(a.err) {
		return controller.Result{}, a.err
	}

	// 5. Write the status.
	claimed := d.claimed.after(t, a.created, a.deleted)
	statusAgain, err := c.statuses.write(ctx, t, claimed, a)

	// 6. When to look again, if no event comes, also after a failure.
	again := controller.MinPositive(t.throttle.ownership.Remaining(t.now), a.again, statusAgain, untilAvailable(t, claimed.mine, c.deps.Clock.Now()))
	if t.ledger.barrier.Pending() {
		again = controller.MinPositive(again, controller.ConsistencyTimeout) // it is the events of our own writes that wake us, and they may be what is missing
	}
	return controller.Result{RequeueAfter: again}, errors.Join(a.err, err)
}

// decision is what a sync makes of the pods that it has read.
type decision struct {
	claimed claims
	todo    plan
}

// claimAndPlan finds out which pods are ours, adopts and releases what is to be, and plans what to do about their number.
func (c *Controller) claimAndPlan(ctx context.Context, t task) (d decision, err error) {
	d.claimed = claim(t.rs, t.selector, t.pods, t.ledger.deleted)
	if t.rs.DeletionTimestamp != nil {
		return d, nil
	}
	adopted, err := c.owners.AdoptAndRelease(ctx, t.rs, d.claimed.adopt, d.claimed.release, &t.throttle.ownership, &t.ledger.barrier,
		func(n int, do func(int)) (int, error) { return c.slots.Each(ctx, t.key, t.deadline(), n, do) })
	if err != nil {
		return d, err
	}
	d.claimed.mine = append(d.claimed.mine, slices.DeleteFunc(adopted, func(pod *caches.Pod) bool { return !t.counts(pod) })...)
	d.todo = planReplicas(t.want(), d.claimed.mine, t.ledger.unanswered, c.cfg.Burst)
	return d, nil
}

func (c *Controller) patchPod(ctx context.Context, pod *caches.Pod, body []byte) (*caches.Pod, error) {
	patched, err := c.deps.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	return c.deps.Pods.Trim(patched), nil
}

// writes reports whether the decision creates or deletes pods, or changes numbers of the status.
func (c *Controller) writes(t task, d decision) bool {
	return d.todo.writes() || c.statuses.changesNumbers(t, d.claimed)
}

// unconfirmed returns a reason for a live read if a pod is wanted again, its delete was not answered, and only a live read can show the outcome.
func unconfirmed(t task, d decision) string {
	if d.todo.spared() > 0 && !t.ledger.decided().After(t.now) {
		return readUnanswered
	}
	return ""
}

// apply carries out the plan.
func (c *Controller) apply(ctx context.Context, t task, d decision) applied {
	if t.rs.DeletionTimestamp != nil {
		return applied{held: true}
	}
	var later time.Duration
	if d.todo.spared() > 0 {
		later = t.ledger.decided().Sub(t.now)
	}
	var a applied
	switch {
	case d.todo.deletes():
		a = c.remover.remove(ctx, t, d.todo)
	case d.todo.create > 0:
		allowed, delay := c.creator.allowed(ctx, t, d.todo.missing, d.claimed.failed)
		later = controller.MinPositive(later, delay)
		if n := min(d.todo.create, allowed); n > 0 {
			a = c.creator.create(ctx, t, n)
		} else {
			a.held = true
		}
	}
	a.again = controller.MinPositive(a.again, later)
	return a
}

// ended is the answer of a sync that an error ended before anything was created or deleted.
func (c *Controller) ended(err error) (controller.Result, error) {
	notReady := (*controller.NotReadyError)(nil)
	switch {
	case errors.As(err, &notReady):
		c.metrics.skipped(notReady.Missing)
		return controller.Result{RequeueAfter: controller.ConsistencyRecheck}, nil
	case errors.Is(err, live.ErrReplaced):
		return controller.Result{RequeueAfter: controller.ConsistencyRecheck}, nil
	case err == errCut: // alone, without a failure beside it
		return controller.Result{RequeueAfter: controller.Immediately}, nil
	}
	return controller.Result{}, err
}

// untilAvailable is how long it takes until the next ready pod becomes available; 0: none will. Its time is found with the clock reading that the
// status was made with, and waited for from now on.
func untilAvailable(t task, active []*caches.Pod, now time.Time) time.Duration {
	minReady := t.rs.Spec.MinReadySeconds
	if minReady == 0 {
		return 0
	}
	if c := count(t.rs, active, -1, t.now); c.ready == c.available {
		return 0
	}
	at := nextAvailable(active, minReady, t.now)
	if at.IsZero() {
		return time.Duration(minReady) * time.Second
	}
	return max(at.Sub(now), controller.Immediately)
}

// task is what one sync works on. It is a value: a live read makes another of it. What lasts beyond the sync is in its ledger and its throttle.
type task struct {
	key      cache.ObjectName
	now      time.Time           // when the sync began
	at       controller.Versions // that the caches had reached before anything was read
	rs       *appsv1.ReplicaSet  // from the cache, or from a live read; not to be changed
	selector labels.Selector
	pods     []*caches.Pod // ours and nobody's
	ledger   *ledger
	throttle *throttle
}

// deadline is when the sync stops sending writes.
func (t task) deadline() time.Time { return t.now.Add(syncLimit) }

// want is the number of replicas asked for.
func (t task) want() int {
	if t.rs.Spec.Replicas == nil {
		return 1 // the API server's default
	}
	return int(*t.rs.Spec.Replicas)
}

func (t task) selects(pod *caches.Pod) bool { return t.selector.Matches(labels.Set(pod.Labels)) }

// counts reports whether a pod counts for the ReplicaSet.
func (t task) counts(pod *caches.Pod) bool {
	return pod.IsActive() && controls(t.rs, pod) && t.selects(pod)
}

// knows reports whether a pod is among those that were read.
func (t task) knows(pod *caches.Pod) bool {
	for _, other := range t.pods {
		if other.UID == pod.UID {
			return true
		}
	}
	return false
}
