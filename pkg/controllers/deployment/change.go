package deployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

const reasonScaling = "ScalingReplicaSet" // as upstream

// patchBody returns a JSON patch that the API server applies only to the same ReplicaSet at the same generation, so
// a size is changed once at most. Status writes do not raise the generation and cause no conflict. Without
// annotations there is no map to add to: the patch adds a map, and tests the version.
func (c change) patchBody() []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	operations := []operation{{"test", "/metadata/uid", c.rs.UID}, {"test", "/metadata/generation", c.rs.Generation}}
	if c.from != c.to {
		operations = append(operations, operation{"add", "/spec/replicas", c.to})
	}
	if c.minReadySeconds != nil {
		operations = append(operations, operation{"add", "/spec/minReadySeconds", *c.minReadySeconds})
	}
	if c.addsFirstAnnotations() {
		operations = append(operations, operation{"test", "/metadata/resourceVersion", c.rs.ResourceVersion},
			operation{"add", "/metadata/annotations", c.annotations})
	} else {
		escape := strings.NewReplacer("~", "~0", "/", "~1")
		for _, key := range slices.Sorted(maps.Keys(c.annotations)) {
			operations = append(operations, operation{"add", "/metadata/annotations/" + escape.Replace(key), c.annotations[key]})
		}
	}
	body, _ := json.Marshal(operations)
	return body
}

func (c change) addsFirstAnnotations() bool {
	return len(c.rs.Annotations) == 0 && len(c.annotations) > 0
}

// isOutdatedBy reports whether the API server rejects the patch because the ReplicaSet has changed. rs is a live read
// with the same UID.
func (c change) isOutdatedBy(rs *appsv1.ReplicaSet) bool {
	return rs.Generation != c.rs.Generation || c.addsFirstAnnotations() && rs.ResourceVersion != c.rs.ResourceVersion
}

// patchResult is the result of one change.
type patchResult struct {
	outcome outcome.Outcome    // Conflict if the ReplicaSet has changed since it was read
	set     *appsv1.ReplicaSet // nil if unknown
	err     error
}

// sendChange sends a change. The API server returns 422 for a failed test as well as for an invalid object, and a
// live read shows the difference.
func (c *Controller) sendChange(ctx context.Context, ch change) patchResult {
	if controller.Draining(ctx) {
		return patchResult{outcome: outcome.NotSent, err: controller.ErrDraining}
	}
	var got *appsv1.ReplicaSet
	res, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		got, err = c.Client.AppsV1().ReplicaSets(ch.rs.Namespace).Patch(ctx, ch.rs.Name, types.JSONPatchType, ch.patchBody(), metav1.PatchOptions{})
		return err
	})
	r := patchResult{outcome: res, set: got, err: err}
	if res != outcome.Conflict && !(res == outcome.Rejected && apierrors.IsInvalid(err)) {
		return r
	}
	live, readErr := c.readReplicaSet(ctx, ch.rs.Namespace, ch.rs.Name)
	switch {
	case readErr != nil:
		r.outcome, r.err = outcome.NotSent, errors.Join(err, readErr)
	case live == nil || live.UID != ch.rs.UID:
		r.outcome = outcome.NotFound
	case ch.isOutdatedBy(live), len(live.Annotations) == 0 && len(ch.rs.Annotations) > 0:
		r.outcome, r.set = outcome.Conflict, live
	default: // a 409 without a change is of a webhook, or of too many writes of the status
		r.outcome = outcome.Rejected
	}
	return r
}

// recordChange records the result of a change and sends an event.
func (c *Controller) recordChange(ctx context.Context, t syncState, ch change, r patchResult) error {
	if ch.isRaise() && !statusCaughtUp(ch.rs) {
		delete(t.memory.reliableStatus, ch.rs.UID) // for any result: the raise may have been carried out
	}
	switch r.outcome {
	case outcome.Done:
		delete(t.memory.rejectedChanges, ch.rs.UID)
		if ch.from != ch.to {
			t.memory.resizedAt[ch.rs.UID] = c.Clock.Now()
		}
		t.expectations.barrier.RequireVersion(c.replicaSets, r.set.ResourceVersion, t.now)
		c.reportScaled(ctx, t, ch)
		return nil
	case outcome.Conflict:
		t.expectations.barrier.RequireVersion(c.replicaSets, r.set.ResourceVersion, t.now)
		return controller.ErrOutdated
	case outcome.NotFound:
		return controller.ErrOutdated
	case outcome.Unknown:
		until := c.Clock.Now().Add(outcome.MaxCompletionDelay)
		t.expectations.unknownChanges[ch.rs.UID] = unknownChange{change: ch, generation: t.d.Generation, until: until}
	case outcome.Rejected:
		delay := t.memory.rejectedChange(t.d, ch.rs).next(minRejected, maxRejected, c.Clock.Now())
		t.memory.rejectedChanges[ch.rs.UID] = rejectedChange{delay, t.d.Generation, ch.rs.Generation}
	}
	if isCanceled(r.err) {
		return r.err
	}
	c.recorder.Eventf(t.d, corev1.EventTypeWarning, "FailedScaleReplicaSet", "Failed to scale replica set %s from %d to %d: %v",
		ch.rs.Name, ch.from, ch.to, outcome.EventMessage(r.err))
	return fmt.Errorf("scale ReplicaSet %s from %d to %d: %w", ch.rs.Name, ch.from, ch.to, r.err)
}

func (c *Controller) reportScaled(ctx context.Context, t syncState, ch change) {
	if ch.from == ch.to {
		return
	}
	direction := "down"
	if ch.isRaise() {
		direction = "up"
	}
	klog.FromContext(ctx).V(2).Info("Scaled ReplicaSet", "replicaSet", klog.KObj(ch.rs), "from", ch.from, "to", ch.to)
	c.recorder.Eventf(t.d, corev1.EventTypeNormal, reasonScaling, "Scaled %s replica set %s from %d to %d", direction, ch.rs.Name, ch.from, ch.to)
}

// settleChanges resolves changes with an unknown outcome. It returns the requeue delay, or 0 if the sync may
// continue. The same patch is sent again, so the size is changed once at most. If the Deployment has changed
// since, the change may be unwanted, and the ReplicaSet is only read.
func (c *Controller) settleChanges(ctx context.Context, t syncState) (wait time.Duration, err error) {
	for uid, pending := range t.expectations.unknownChanges {
		ch, r := pending.change, c.retryChange(ctx, t, pending)
		now := c.Clock.Now()
		switch {
		case r.outcome == outcome.Done, r.outcome == outcome.NotFound, r.outcome == outcome.Conflict && ch.isOutdatedBy(r.set):
			if r.outcome == outcome.Conflict && replicasOrOne(r.set.Spec.Replicas) == ch.to {
				c.reportScaled(ctx, t, ch)
			}
			delete(t.expectations.unknownChanges, uid)
			_ = c.recordChange(ctx, t, ch, r)
			r.err = nil
		case r.outcome == outcome.Unknown:
			pending.until = now.Add(outcome.MaxCompletionDelay)
			t.expectations.unknownChanges[uid] = pending
		case r.outcome != outcome.NotSent && !now.Before(pending.until): // not carried out
			delete(t.expectations.unknownChanges, uid)
			continue
		case r.outcome == outcome.Conflict && r.err == nil: // an event shows the first attempt
			wait = timing.MinPositive(wait, pending.until.Sub(now))
			continue
		}
		wait = timing.MinPositive(wait, controller.ConsistencyRecheck)
		if r.err != nil {
			err = errors.Join(err, fmt.Errorf("scale ReplicaSet %s again: %w", ch.rs.Name, r.err))
		}
	}
	return wait, err
}

func (c *Controller) retryChange(ctx context.Context, t syncState, pending unknownChange) patchResult {
	rs := pending.change.rs
	if pending.generation == t.d.Generation {
		return c.sendChange(ctx, pending.change)
	}
	live, err := c.readReplicaSet(ctx, rs.Namespace, rs.Name)
	switch {
	case err != nil:
		return patchResult{outcome: outcome.NotSent, err: err}
	case live == nil || live.UID != rs.UID:
		return patchResult{outcome: outcome.NotFound}
	}
	return patchResult{outcome: outcome.Conflict, set: live}
}
