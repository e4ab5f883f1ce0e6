package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/discovery"
)

// state is the progress of one terminating namespace. Losing the state costs requests only.
type state struct {
	empty    sets.Set[discovery.Type]     // types that earlier passes left empty; nil: list all
	timeouts map[schema.GroupResource]int // passes with timeouts since the type was last empty, at most maxTimeouts
	hiddenAt time.Time                    // of the latest 404 for a discovered type
	finished bool                         // finalized, but the conditions could not be written
}

// reconcile returns an error if requests failed. Remaining objects are not an error.
func (c *Controller) reconcile(ctx context.Context, name string) (controller.Result, error) {
	cached, ok := c.namespaces.Get(cache.NewObjectName("", name))
	if !ok || cached.DeletionTimestamp == nil {
		c.forgetState(name)
		return controller.Result{}, nil
	}
	return c.sync(ctx, name)
}

// sync takes a terminating namespace as far as possible. The order of the steps is the promise of this package.
func (c *Controller) sync(ctx context.Context, name string) (controller.Result, error) {
	// 1. Read the namespace live.
	ns, err := c.readNamespace(ctx, name)
	if err != nil {
		return controller.Result{}, err
	}
	if ns == nil || ns.DeletionTimestamp == nil || len(ns.Spec.Finalizers) == 0 && !c.states.For(name, ns.UID).finished {
		c.forgetState(name)
		return controller.Result{RequeueAfter: c.cfg.SyncPeriod}, nil
	}
	s := c.states.For(name, ns.UID)
	if s.finished {
		return c.finish(ctx, ns, report{})
	}
	now := c.Clock.Now() // before the first list
	seen := c.firstSeen(ns.UID, now)
	graceEnd := seen.Add(max(c.cfg.Grace, minGrace))

	// 2. Delete the pods. Pods do not wait for the grace period.
	p := &purger{Controller: c, namespace: ns, seen: seen, timeouts: s.timeouts}
	pods := p.purge(ctx, discovery.Pods)
	s.recordTimeouts(pods)
	if pods.err == nil && pods.remaining == 0 && now.Before(graceEnd) {
		c.metrics.showCauses(name, causeGrace)
		return controller.Result{RequeueAfter: max(graceEnd.Sub(c.Clock.Now()), controller.Immediately)}, nil
	}

	// 3. Discover the types, after the grace period if that is over.
	known, err := c.catalogue.Read(ctx, discoveryNotBefore(seen, graceEnd, s.hiddenAt, now))
	if err != nil {
		return controller.Result{}, fmt.Errorf("discover: %w", err)
	}
	r := report{content: known, results: []typeResult{pods}}

	// 4. Wait until no pods are left.
	if !podsGone(pods, known) {
		if pods.unserved && known.Has(discovery.Pods.GroupResource()) {
			r.results[0].err = listFailed(discovery.Pods, errHidden)
		}
		return c.hold(ctx, ns, r, now.Sub(seen))
	}

	// 5. Delete the other types, if the namespace still has the same UID.
	live, err := c.readNamespace(ctx, name)
	if err != nil {
		return controller.Result{}, err
	}
	if live == nil || live.UID != ns.UID {
		c.forgetState(name)
		return controller.Result{}, nil
	}
	ns = live // another client may have changed the namespace since step 1
	p.known = known
	listsAllTypes := s.empty == nil
	r.results = append(r.results, p.purgeAll(ctx, s.typesOfPass(known))...)
	s.record(r.results[1:], c.Clock.Now())

	// 6. Finalize after a pass over all types that left no objects.
	if r.isBlocked() {
		return c.hold(ctx, ns, r, now.Sub(seen))
	}
	s.empty = nil // also after a failed finalization: a partial pass would end its back-off
	if !listsAllTypes {
		return controller.Result{RequeueAfter: controller.Immediately}, nil
	}
	return c.finish(ctx, ns, r)
}

// hold shows the remaining content to users and decides when to sync again.
func (c *Controller) hold(ctx context.Context, ns *corev1.Namespace, r report, waited time.Duration) (controller.Result, error) {
	if err := r.canceled(); err != nil {
		return controller.Result{}, err // the term is ending
	}
	_, err := c.writeConditions(ctx, ns, r)
	causes, text := blockersOf(r)
	c.metrics.showCauses(ns.Name, causes...)
	klog.FromContext(ctx).V(4).Info("Waiting for namespace content", "namespace", ns.Name, "reason", text)
	failures := slices.DeleteFunc(r.errs(), func(err error) bool { return errors.Is(err, errSkipped) })
	next := timing.MinPositive(nextSync(waited, c.states.Len()), c.cfg.SyncPeriod)
	return controller.Result{RequeueAfter: next}, errors.Join(append(failures, err)...)
}

// finish finalizes a namespace without content.
func (c *Controller) finish(ctx context.Context, ns *corev1.Namespace, r report) (controller.Result, error) {
	// Finalization does not depend on the conditions. A later sync repeats a failed write.
	var unwritten error
	if r.finalizers = remainingFinalizers(ns); len(r.finalizers) > 0 {
		ns, unwritten = c.writeConditions(ctx, ns, r)
	}
	if hasOurFinalizer(ns) {
		err := c.finalize(ctx, ns)
		if isRejected(err) { // by a policy, or for lack of permission
			c.metrics.showCauses(ns.Name, causeError)
			// With other finalizers the conditions would alternate. A conflict comes from other clients.
			if len(r.finalizers) == 0 && !apierrors.IsConflict(err) {
				r.rejection = err
				_, unwritten = c.writeConditions(ctx, ns, r)
			}
		}
		if err != nil {
			return controller.Result{}, errors.Join(err, unwritten)
		}
	}
	c.forgetState(ns.Name)
	if unwritten != nil {
		c.states.For(ns.Name, ns.UID).finished = true
	}
	return controller.Result{RequeueAfter: c.cfg.SyncPeriod}, unwritten // finalizers of others may keep the namespace
}

// typesOfPass returns the types to list, without pods.
func (s *state) typesOfPass(known discovery.Result) []discovery.Type {
	return slices.DeleteFunc(slices.Clone(known.Types), func(t discovery.Type) bool {
		return t.GroupResource() == discovery.Pods.GroupResource() || s.empty.Has(t)
	})
}

func (s *state) record(results []typeResult, now time.Time) {
	if s.empty == nil {
		s.empty = sets.New[discovery.Type]()
	}
	for _, result := range results {
		s.recordTimeouts(result)
		if result.err == nil && result.remaining == 0 {
			s.empty.Insert(result.resource)
		}
		if errors.Is(result.err, errHidden) {
			s.hiddenAt = now
		}
	}
}

func (s *state) recordTimeouts(result typeResult) {
	resource := result.resource.GroupResource()
	switch {
	case result.timedOut:
		s.timeouts[resource] = min(s.timeouts[resource]+1, maxTimeouts)
	case result.err != nil:
	case result.remaining == 0 || s.timeouts[resource] <= 1:
		delete(s.timeouts, resource)
	default:
		s.timeouts[resource]--
	}
}

func (c *Controller) forgetState(name string) {
	c.states.Delete(name)
	c.metrics.showCauses(name)
}
