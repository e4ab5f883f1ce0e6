package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// pass is one sync of one ReplicaSet.
type pass struct {
	*Controller
	key      cache.ObjectName
	rs       *appsv1.ReplicaSet // from the cache, or from a live read; not to be changed
	selector labels.Selector
	ledger   *ledger
	at       versions
	now      time.Time
	pods     []*caches.Pod // ours and nobody's
	recheck  time.Duration // look again after; 0: no need
}

// reconcile brings one ReplicaSet a step closer to its spec.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	// Versions come first: what is read after them is at least that new.
	at := versions{pods: c.deps.Pods.Version(), sets: c.deps.ReplicaSets.Version()}
	rs, ok := c.deps.ReplicaSets.Get(key)
	if !ok {
		c.ledgers.drop(key) // its pods are the garbage collector's
		return controller.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err == nil && (rs.Spec.Selector == nil || selector.Empty()) {
		err = errors.New("selector is empty") // it would select nothing for ever, or everything
	}
	if err != nil {
		// Nothing to retry: the API server admits no such selector, and only a change can mend it.
		utilruntime.HandleErrorWithContext(ctx, err, "ReplicaSet has an invalid selector")
		return controller.Result{}, nil
	}
	p := &pass{
		Controller: c, key: key, rs: rs, selector: selector, ledger: c.ledgers.of(key, rs.UID), at: at, now: c.deps.Clock.Now(),
	}
	waited := p.ledger.waitingSince
	switch p.ledger.check(at, p.now) {
	case wait:
		behind, _ := p.ledger.behind(at)
		c.metrics.skipped(behind)
		return controller.Result{After: barrierRecheck}, nil
	case overdue:
		klog.FromContext(ctx).V(2).Info("Caches do not show our own writes, reading live", "pods", at.pods, "replicaSets", at.sets)
		return p.runLive(ctx, readOverdue)
	}
	if !waited.IsZero() {
		c.metrics.barrierWait.Observe(p.now.Sub(waited).Seconds())
	}
	p.look()
	return p.run(ctx)
}

// look reads the pods from the cache.
func (p *pass) look() {
	pods := append(p.deps.Pods.ControlledBy(p.rs.UID), p.deps.Pods.Orphans(p.rs.Namespace)...)
	p.pods = p.ledger.withoutGhosts(pods, p.at, p.selected)
	p.metrics.settled(p.ledger.settle(p.pods, func(name string) (*caches.Pod, bool) {
		return p.deps.Pods.Get(cache.NewObjectName(p.rs.Namespace, name))
	}, time.Time{}))
}

// errReplaced means that the ReplicaSet is gone; the one of its name is another, which the cache will show.
var errReplaced = errors.New("replicaset has been deleted and created again")

// lookLive reads the ReplicaSet and its pods as they are in etcd now.
func (p *pass) lookLive(ctx context.Context, reason string) error {
	p.metrics.liveReads.WithLabelValues(reason).Inc()
	rs, err := p.liveSet(ctx)
	if err != nil {
		return err
	}
	pods, version, err := p.deps.Pods.Read(ctx, p.deps.Client, rs.Namespace, metav1.ListOptions{LabelSelector: p.selector.String()})
	if err != nil {
		return fmt.Errorf("read the pods live: %w", err)
	}
	p.rs = rs
	p.ledger.lookedLive(rs, pods, version)
	p.pods = pods
	p.metrics.settled(p.ledger.settle(pods, byNameIn(pods), p.now))
	return nil
}

func byNameIn(pods []*caches.Pod) func(string) (*caches.Pod, bool) {
	return func(name string) (*caches.Pod, bool) {
		for _, pod := range pods {
			if pod.Name == name {
				return pod, true
			}
		}
		return nil, false
	}
}

// liveSet gets the ReplicaSet from the API server. If it is another one by now the error is errReplaced.
func (p *pass) liveSet(ctx context.Context) (*appsv1.ReplicaSet, error) {
	rs, err := p.deps.Client.AppsV1().ReplicaSets(p.rs.Namespace).Get(ctx, p.rs.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errReplaced
	}
	if err != nil {
		return nil, fmt.Errorf("read the ReplicaSet live: %w", err)
	}
	if rs.UID != p.rs.UID {
		return nil, errReplaced
	}
	rs.ManagedFields = nil
	return rs, nil
}

// run claims, plans and acts on the pods that look found. If the plan is the first of the term that creates or deletes, or if other numbers
// are to be told than an earlier manager told, and the caches may not show yet all that one saw and wrote, it is made again on a live read.
func (p *pass) run(ctx context.Context) (controller.Result, error) {
	claimed, todo, err := p.decide(ctx)
	if err != nil {
		return p.give(err)
	}
	if p.cfg.VerifyFirstWrite && (todo.writes() || p.tellsOtherNumbers(claimed)) && !p.ledger.verified && !p.horizon.passedBy(p.at) {
		return p.runLive(ctx, readFirstWrite)
	}
	if todo.spared() > 0 && !p.ledger.decided().After(p.now) {
		return p.runLive(ctx, readUnanswered)
	}
	return p.act(ctx, claimed, todo)
}

// runLive is run on a live read.
func (p *pass) runLive(ctx context.Context, reason string) (controller.Result, error) {
	if err := p.lookLive(ctx, reason); err != nil {
		return p.give(err)
	}
	claimed, todo, err := p.decide(ctx)
	if err != nil {
		return p.give(err)
	}
	return p.act(ctx, claimed, todo)
}

// give turns an error that ends a sync early into its result.
func (p *pass) give(err error) (controller.Result, error) {
	if errors.Is(err, errReplaced) {
		return controller.Result{After: barrierRecheck}, nil
	}
	if err == errCut { // alone, without a failure beside it
		return controller.Result{After: atOnce}, nil
	}
	return controller.Result{}, err
}

// decide settles which pods are ours and what is to be done about their number.
func (p *pass) decide(ctx context.Context) (claims, plan, error) {
	claimed := claim(p.rs, p.selector, p.pods, p.ledger.gone)
	if p.rs.DeletionTimestamp != nil {
		return claimed, plan{}, nil
	}
	adopted, err := p.settleOwnership(ctx, claimed)
	if err != nil {
		return claims{}, plan{}, err
	}
	claimed.mine = append(claimed.mine, adopted...)
	return claimed, planReplicas(p.want(), claimed.mine, p.ledger.doomed, p.cfg.Burst), nil
}

// want is the number of replicas asked for.
func (p *pass) want() int {
	if p.rs.Spec.Replicas == nil {
		return 1 // the API server's default
	}
	return int(*p.rs.Spec.Replicas)
}

func (p *pass) selected(pod *caches.Pod) bool { return p.selector.Matches(labels.Set(pod.Labels)) }

// ours reports whether a pod counts for the ReplicaSet.
func (p *pass) ours(pod *caches.Pod) bool {
	return pod.IsActive() && controls(p.rs, pod) && p.selected(pod)
}

// act creates or deletes, and writes the status.
func (p *pass) act(ctx context.Context, claimed claims, todo plan) (controller.Result, error) {
	a := p.apply(ctx, claimed, todo)
	defer func() {
		met := todo.missing == 0 || p.namespaceTerminating() // where nothing can be created
		p.ledgers.note(p.key, p.ledger.unanswered(), met, p.now)
	}()
	if errors.Is(a.err, context.Canceled) {
		return controller.Result{}, a.err
	}
	statusErr := p.writeStatus(ctx, claimed, a)
	if statusErr == nil && a.err == nil {
		p.scheduleAvailability(claimed.mine)
	}
	if err := errors.Join(a.err, statusErr); err != nil {
		return controller.Result{}, err
	}
	if p.ledger.unseen(p.now) {
		p.again(barrierPatience) // it is the events of our own writes that wake us, and they may be what is missing
	}
	return controller.Result{After: p.recheck}, nil
}

// apply carries out the plan.
func (p *pass) apply(ctx context.Context, claimed claims, todo plan) attempt {
	if p.rs.DeletionTimestamp != nil {
		return attempt{held: true}
	}
	if todo.spared() > 0 {
		p.again(p.ledger.decided().Sub(p.now))
	}
	if todo.missing <= 0 {
		p.ledger.succeeded(claimed.failed)
	}
	switch {
	case todo.deletes():
		return attempt{err: p.remove(ctx, todo)}
	case todo.create == 0:
		return attempt{}
	}
	n := min(todo.create, p.allowed(ctx, todo.missing, claimed.failed))
	if n == 0 {
		return attempt{held: true}
	}
	return p.create(ctx, n)
}

// atOnce asks for another sync without delay: zero would ask for none.
const atOnce = time.Nanosecond

// again asks for another sync after d at the latest.
func (p *pass) again(d time.Duration) {
	if d > 0 && (p.recheck == 0 || d < p.recheck) {
		p.recheck = d
	}
}

// scheduleAvailability asks for a sync at the moment the next ready pod becomes available. Its time is found with the clock reading that
// the status was made with, and waited for from now on.
func (p *pass) scheduleAvailability(active []*caches.Pod) {
	minReady := p.rs.Spec.MinReadySeconds
	c := count(p.rs, active, -1, p.now)
	if minReady == 0 || c.ready == c.available {
		return
	}
	at := nextAvailable(active, minReady, p.now)
	if at.IsZero() {
		p.again(time.Duration(minReady) * time.Second)
		return
	}
	p.again(max(at.Sub(p.deps.Clock.Now()), atOnce))
}
