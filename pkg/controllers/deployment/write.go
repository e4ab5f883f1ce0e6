package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// writer carries out plans.
type writer struct {
	client      kubernetes.Interface
	deployments *caches.Deployments
	sets        *caches.ReplicaSets
	read        *reader
	recorder    record.EventRecorder
	clock       clock.Clock
	metrics     *metrics
}

// writes reports whether the plan writes anything besides the status.
func (p plan) writes() bool {
	return p.create != nil || len(p.changes) > 0 || len(p.delete) > 0
}

// applied is what became of a plan.
type applied struct {
	plan    plan // what was carried out at last
	done    []change
	created bool
	moved   bool   // something has changed since it was read, and the rest waits for the cache to show it
	failed  string // why there is no new ReplicaSet; empty: nothing is wrong
	err     error
	again   time.Duration
}

// apply creates, then shrinks, then raises. What cannot be created changes the plan.
func (w *writer) apply(ctx context.Context, t task, d decision) applied {
	a := applied{plan: d.plan}
	if d.plan.create != nil {
		creation := w.create(ctx, t, d.plan.create)
		a.err, a.again = creation.err, creation.again
		switch creation.fate {
		case createDone:
			a.created = true
			a.plan = a.plan.with(creation.set)
		case createMet:
			a.moved = true
			return a
		case createTaken, createRefused:
			d.facts.nameTaken, d.facts.holdCreate = creation.fate == createTaken, creation.hold
			d.replan(t)
			a.plan, a.failed = d.plan, creation.message
		case createUnknown:
			a.failed = creation.message
			return a
		}
	}
	raises := slices.IndexFunc(a.plan.changes, change.raises)
	if raises < 0 {
		raises = len(a.plan.changes)
	}
	w.resize(ctx, t, &a, a.plan.changes[:raises])
	if !stopped(a.err) && !a.moved {
		w.resize(ctx, t, &a, a.plan.raisesAfter(a.done))
	}
	return a
}

// stopped reports whether an error says that nothing can be written any more.
func stopped(err error) bool { return errors.Is(err, context.Canceled) }

// resize changes ReplicaSets, all at once, but for those of which a change was refused not long ago.
func (w *writer) resize(ctx context.Context, t task, a *applied, changes []change) {
	changes = slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		wait := t.throttle.refused(t.d, c.rs).wait(t.now)
		if wait > 0 && !slices.Contains(a.plan.held, holdResizeBackoff) {
			a.plan.held = append(slices.Clip(a.plan.held), holdResizeBackoff)
		}
		a.again = controller.MinPositive(a.again, wait)
		return wait > 0
	})
	replies := make([]patched, len(changes))
	var calls controller.Group
	calls.SetLimit(writesInFlight)
	for i, c := range changes {
		calls.Go(func() error {
			replies[i] = w.send(ctx, c)
			return nil
		})
	}
	_ = calls.Wait() // errors are part of the replies
	for i, c := range changes {
		switch err := w.note(ctx, t, c, replies[i]); {
		case err == nil:
			a.done = append(a.done, c)
		case errors.Is(err, errMoved):
			a.moved = true
		default:
			a.err = errors.Join(a.err, err)
		}
	}
}

// writesInFlight is how many ReplicaSets of one Deployment are resized at once.
const writesInFlight = 10

// tell returns the status and the revision after what was done.
func (a applied) tell(t task, d decision) (appsv1.DeploymentStatus, string) {
	status, revision := a.plan.status, a.plan.revision // as planned
	instead := func(o applyResult) {
		p := passOf(t.d, d.sets, d.facts, t.now)
		status, revision = p.status(o), p.revision(o)
	}
	switch {
	case a.plan.create != nil && !a.created: // nor was anything else done
		instead(applyResult{})
	case len(a.done) < len(a.plan.changes):
		o := a.plan.outcome
		o.changes, o.observed = a.done, false
		instead(o)
	}
	if a.failed != "" {
		status = pass{d: t.d, now: t.now}.createFailed(status, a.failed)
	}
	return status, revision
}

// prune deletes old ReplicaSets. The first failure ends it; one that has changed is judged again.
func (w *writer) prune(ctx context.Context, t task, sets []*appsv1.ReplicaSet) error {
	for _, rs := range sets {
		if controller.Draining(ctx) {
			return controller.ErrDraining
		}
		err := w.client.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion},
		})
		switch outcome.FromError(err) {
		case outcome.Done, outcome.NotFound:
			klog.FromContext(ctx).V(2).Info("Deleted an old ReplicaSet", "replicaSet", klog.KObj(rs), "revision", revisionOf(rs.Annotations))
		case outcome.Conflict:
			return errMoved
		default:
			return fmt.Errorf("delete old ReplicaSet %s: %w", rs.Name, err)
		}
	}
	return nil
}
