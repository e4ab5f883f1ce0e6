package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// applyResult is the result of applyPlan.
type applyResult struct {
	result       rolloutResult
	deferred     []deferral
	outdated     bool // an object has changed since it was read: the rest of the plan waits for the caches
	err          error
	requeueAfter time.Duration
}

// applyPlan creates, then shrinks, then raises.
func (c *Controller) applyPlan(ctx context.Context, t syncState, p plan) applyResult {
	a := applyResult{result: p.result, deferred: slices.Clone(p.deferred)}
	a.result.changes = nil
	if p.create != nil {
		creation := c.createNew(ctx, t, p.create)
		a.err, a.requeueAfter = creation.err, creation.requeueAfter
		if creation.deferred != "" {
			a.deferred = append(a.deferred, creation.deferred)
		}
		if creation.set == nil {
			a.outdated = creation.outdated
			a.result = rolloutResult{collision: creation.collision, createFailure: creation.message}
			return a
		}
		*p.create = *creation.set // the changes refer to it
	}
	c.applyChanges(ctx, t, &a, slices.DeleteFunc(slices.Clone(p.changes), change.isRaise))
	if !isCanceled(a.err) && !a.outdated {
		c.applyChanges(ctx, t, &a, p.raisesAfter(a.result.changes))
	}
	a.result.observed = a.result.observed && len(a.result.changes) == len(p.changes)
	return a
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// applyChanges sends changes in parallel, apart from those that back off.
func (c *Controller) applyChanges(ctx context.Context, t syncState, a *applyResult, changes []change) {
	changes = slices.DeleteFunc(slices.Clone(changes), func(ch change) bool {
		wait := t.memory.rejectedChange(t.d, ch.rs).remaining(t.now)
		if wait > 0 && !slices.Contains(a.deferred, deferResizeBackoff) {
			a.deferred = append(a.deferred, deferResizeBackoff)
		}
		a.requeueAfter = timing.MinPositive(a.requeueAfter, wait)
		return wait > 0
	})
	results := make([]patchResult, len(changes))
	var calls controller.Group
	calls.SetLimit(writesInFlight)
	for i, ch := range changes {
		calls.Go(func() error {
			results[i] = c.sendChange(ctx, ch)
			return nil
		})
	}
	_ = calls.Wait()
	for i, ch := range changes {
		switch err := c.recordChange(ctx, t, ch, results[i]); {
		case err == nil:
			a.result.changes = append(a.result.changes, ch)
		case errors.Is(err, controller.ErrOutdated):
			a.outdated = true
		default:
			a.err = errors.Join(a.err, err)
		}
	}
}

// writesInFlight is the number of ReplicaSets of one Deployment that are patched in parallel.
const writesInFlight = 10

// deleteHistory deletes old ReplicaSets until the first failure.
func (c *Controller) deleteHistory(ctx context.Context, sets []*appsv1.ReplicaSet) error {
	for _, rs := range sets {
		if controller.Draining(ctx) {
			return controller.ErrDraining
		}
		err := c.Client.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion},
		})
		switch outcome.FromError(err) {
		case outcome.Done, outcome.NotFound:
			klog.FromContext(ctx).V(2).Info("Deleted old ReplicaSet", "replicaSet", klog.KObj(rs), "revision", revisionOf(rs.Annotations))
		case outcome.Conflict:
			return controller.ErrOutdated
		default:
			return fmt.Errorf("delete old ReplicaSet %s: %w", rs.Name, err)
		}
	}
	return nil
}
