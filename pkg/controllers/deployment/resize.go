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

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

const reasonScaling = "ScalingReplicaSet" // as upstream

// body returns the change as a patch that is carried out only on the ReplicaSet that was judged, at the generation at which it was judged. Statuses do
// not raise the generation, so the ReplicaSet controller, which writes one at just that time, is in nobody's way. One without annotations has no
// place for them, so its patch replaces the map and is bound to the version.
func (c change) patchBody() (types.PatchType, []byte, error) {
	if c.boundToVersion() {
		body, err := c.mergePatch()
		return types.MergePatchType, body, err
	}
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
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, key := range slices.Sorted(maps.Keys(c.annotations)) {
		operations = append(operations, operation{"add", "/metadata/annotations/" + escape.Replace(key), c.annotations[key]})
	}
	body, err := json.Marshal(operations)
	return types.JSONPatchType, body, err
}

// boundToVersion reports whether the patch is carried out only on the very version that was judged.
func (c change) boundToVersion() bool { return len(c.rs.Annotations) == 0 && len(c.annotations) > 0 }

// outdatedBy reports whether the change can no longer be carried out, now that the ReplicaSet is as it is. Annotations and statuses do not raise its generation.
func (c change) outdatedBy(rs *appsv1.ReplicaSet) bool {
	return rs != nil && rs.UID == c.rs.UID && (rs.Generation != c.rs.Generation || c.boundToVersion() && rs.ResourceVersion != c.rs.ResourceVersion)
}

func (c change) mergePatch() ([]byte, error) {
	spec := map[string]any{}
	if c.from != c.to {
		spec["replicas"] = c.to
	}
	if c.minReadySeconds != nil {
		spec["minReadySeconds"] = *c.minReadySeconds
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.rs.UID, "resourceVersion": c.rs.ResourceVersion, "annotations": c.annotations},
		"spec":     spec,
	})
}

// patched is the reply to one change.
type patchResult struct {
	outcome outcome.Outcome    // Conflict: the ReplicaSet is not what was judged
	set     *appsv1.ReplicaSet // as it is now, if it is known
	err     error
}

// send carries out a change. A failed test is answered like an object that cannot be, so a look tells one from the other.
func (w *writer) sendChange(ctx context.Context, c change) patchResult {
	if controller.Draining(ctx) {
		return patchResult{outcome: outcome.NotSent, err: controller.ErrDraining}
	}
	patchType, body, err := c.patchBody()
	if err != nil {
		return patchResult{outcome: outcome.NotSent, err: err}
	}
	var got *appsv1.ReplicaSet
	res, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		got, err = w.client.AppsV1().ReplicaSets(c.rs.Namespace).Patch(ctx, c.rs.Name, patchType, body, metav1.PatchOptions{})
		return err
	})
	r := patchResult{outcome: res, set: got, err: err}
	if res != outcome.Conflict && !(res == outcome.Rejected && apierrors.IsInvalid(err)) {
		return r
	}
	live, readErr := w.read.replicaSet(ctx, c.rs.Namespace, c.rs.Name, readRejected)
	switch {
	case readErr != nil: // it was not done, and why is not known
		r.outcome, r.err = outcome.NotSent, errors.Join(err, readErr)
	case live == nil || live.UID != c.rs.UID:
		r.outcome = outcome.NotFound
	case live.Generation != c.rs.Generation, res == outcome.Conflict, len(live.Annotations) == 0 && len(c.rs.Annotations) > 0:
		r.outcome, r.set = outcome.Conflict, live
	}
	return r
}

// note enters a reply into the ledger and tells users of it. It returns what the sync fails with.
func (w *writer) recordChange(ctx context.Context, t syncState, c change, r patchResult) error {
	if c.isRaise() && !(replicaSet{rs: c.rs}).statusCaughtUp() {
		delete(t.expectations.reliableStatus, c.rs.UID) // whatever the answer: it may have been carried out
	}
	switch r.outcome {
	case outcome.Done:
		delete(t.expectations.unknownResizes, c.rs.UID)
		delete(t.backoffs.rejectedResizes, c.rs.UID)
		if c.from != c.to {
			t.expectations.resizedAt[c.rs.UID] = w.clock.Now()
		}
		t.expectations.barrier.WroteAt(w.sets, r.set.ResourceVersion, t.now)
		w.reportScaled(ctx, t, c)
		return nil
	case outcome.Conflict:
		delete(t.expectations.unknownResizes, c.rs.UID)
		t.expectations.barrier.WroteAt(w.sets, r.set.ResourceVersion, t.now)
		return errChanged
	case outcome.NotFound:
		delete(t.expectations.unknownResizes, c.rs.UID)
		return errChanged
	case outcome.Unknown:
		t.expectations.unknownResizes[c.rs.UID] = unknownResize{change: c, generation: t.d.Generation, until: w.clock.Now().Add(outcome.MaxCompletionDelay)}
	case outcome.Rejected:
		t.backoffs.resizeRejected(t.d, c.rs, w.clock.Now())
	}
	if isCanceled(r.err) {
		return r.err
	}
	w.recorder.Eventf(t.d, corev1.EventTypeWarning, "FailedScaleReplicaSet", "Failed to scale replica set %s from %d to %d: %v", c.rs.Name, c.from, c.to, outcome.EventMessage(r.err))
	return fmt.Errorf("scale ReplicaSet %s from %d to %d: %w", c.rs.Name, c.from, c.to, r.err)
}

func (w *writer) reportScaled(ctx context.Context, t syncState, c change) {
	if c.from == c.to {
		klog.FromContext(ctx).V(4).Info("Updated ReplicaSet", "replicaSet", klog.KObj(c.rs), "annotations", len(c.annotations))
		return
	}
	direction := "down"
	if c.isRaise() {
		direction = "up"
	}
	klog.FromContext(ctx).V(2).Info("Scaled ReplicaSet", "replicaSet", klog.KObj(c.rs), "from", c.from, "to", c.to, "why", c.reason)
	w.recorder.Eventf(t.d, corev1.EventTypeNormal, reasonScaling, "Scaled %s replica set %s from %d to %d", direction, c.rs.Name, c.from, c.to)
}

// settle resolves changes with an unknown outcome. It returns how long everything else has to wait for them, or 0 if nothing is pending. A change is sent again as it
// was, so the size is changed once at most. If the Deployment has changed since, the change may be unwanted, and the ReplicaSet is only read.
func (w *writer) settleResizes(ctx context.Context, t syncState) (wait time.Duration, err error) {
	for uid, pending := range t.expectations.unknownResizes {
		c := pending.change
		if backoff := t.backoffs.rejectedResize(t.d, c.rs).remaining(t.now); backoff > 0 && t.now.Before(pending.until) {
			wait = controller.MinPositive(wait, backoff, pending.until.Sub(t.now))
			continue
		}
		r := w.retryResize(ctx, t, pending)
		now := w.clock.Now()
		switch {
		case r.outcome == outcome.Done, r.outcome == outcome.NotFound, r.outcome == outcome.Conflict && c.outdatedBy(r.set):
			if r.outcome == outcome.Conflict && replicasOrOne(r.set.Spec.Replicas) == c.to {
				w.reportScaled(ctx, t, c)
			}
			_ = w.recordChange(ctx, t, c, r)
			wait = controller.MinPositive(wait, controller.ConsistencyRecheck)
			continue
		case r.outcome == outcome.Unknown:
			pending.until = now.Add(outcome.MaxCompletionDelay)
			t.expectations.unknownResizes[uid] = pending
		case !now.Before(pending.until): // it was not carried out
			delete(t.expectations.unknownResizes, uid)
			continue
		}
		if r.outcome == outcome.Rejected || r.outcome == outcome.Conflict { // the first attempt may still be carried out
			t.backoffs.resizeRejected(t.d, c.rs, now)
			wait = controller.MinPositive(wait, t.backoffs.rejectedResize(t.d, c.rs).remaining(now), pending.until.Sub(now))
			continue
		}
		wait = controller.MinPositive(wait, controller.ConsistencyRecheck)
		if r.err != nil {
			err = errors.Join(err, fmt.Errorf("scale ReplicaSet %s again: %w", c.rs.Name, r.err))
		}
	}
	return wait, err
}

// retry sends a pending change again, or reads its ReplicaSet.
func (w *writer) retryResize(ctx context.Context, t syncState, pending unknownResize) patchResult {
	rs := pending.change.rs
	if pending.generation == t.d.Generation {
		return w.sendChange(ctx, pending.change)
	}
	live, err := w.read.replicaSet(ctx, rs.Namespace, rs.Name, readRejected)
	switch {
	case err != nil:
		return patchResult{outcome: outcome.NotSent, err: err}
	case live == nil || live.UID != rs.UID:
		return patchResult{outcome: outcome.NotFound}
	}
	return patchResult{outcome: outcome.Conflict, set: live}
}
