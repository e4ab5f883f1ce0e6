package replicaset

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// writeStatus writes the status if it changed, and returns the requeue delay or 0. The counts include
// confirmed creates and deletes of this sync. Events of creates and deletes with unknown outcome cause
// another sync.
func (c *Controller) writeStatus(ctx context.Context, t syncState, claimed claims, a applyResult) (requeueAfter time.Duration, err error) {
	brief := c.Clock.Since(t.now) < longSync
	newest, ok := c.replicaSets.Get(t.key)
	if !ok || newest.UID != t.rs.UID || newest.Generation <= t.rs.Generation || !sameCounts(newest.Status, t.rs.Status) {
		newest = t.rs
	} else if brief {
		return 0, nil // the event of the newer spec causes another sync
	}
	counts := c.count(t, claimed)
	requeueAfter, err = c.putStatus(ctx, t, newest, counts, a)
	// Admission sees the template, which the cache drops for ReplicaSets with zero replicas.
	incomplete := outcome.FromError(err) == outcome.Rejected && len(newest.Spec.Template.Spec.Containers) == 0
	if !apierrors.IsConflict(err) && !incomplete {
		return requeueAfter, err
	}
	stored, err := c.liveReplicaSet(ctx, t.rs)
	switch {
	case errors.Is(err, controller.ErrOutdated), err == nil && stored.Generation != t.rs.Generation && brief:
		return 0, nil // the event of the newer spec or object causes another sync
	case err != nil:
		return 0, err
	case !sameCounts(stored.Status, t.rs.Status):
		// An earlier leader wrote the counts, or this process without a response. Wait until the cache
		// shows them.
		t.expectations.barrier.RequireVersion(c.replicaSets, stored.ResourceVersion, t.now)
		return controller.ConsistencyRecheck, nil
	}
	return c.putStatus(ctx, t, stored, counts, a)
}

func (c *Controller) count(t syncState, claimed claims) appsv1.ReplicaSetStatus {
	counts := countPods(t.rs, claimed.owned, t.now)
	if c.cfg.TerminatingReplicas {
		counts.TerminatingReplicas = new(int32(claimed.terminating))
	}
	return counts
}

// changesCounts reports whether the next status has other counts than the current one.
func (c *Controller) changesCounts(t syncState, claimed claims) bool {
	counts := c.count(t, claimed)
	if t.rs.Status.TerminatingReplicas == nil {
		counts.TerminatingReplicas = nil // not reported yet
	}
	return !sameCounts(t.rs.Status, counts)
}

// longSync is the duration of a sync from which the status is written although the spec has changed. The
// next sync may take as long.
const longSync = time.Second

// failureInterval is the minimum time before a status that only changes the ReplicaFailure condition. The
// error of a webhook may differ in each sync, and the event of each status causes another sync.
const failureInterval = time.Minute

// terminatingInterval is the minimum time between statuses that only lower terminatingReplicas, and not to
// zero. A Deployment controller that replaces pods only after their end sees the change with that delay.
const terminatingInterval = time.Second

// Rolling updates follow the statuses of ReplicaSets, so the statuses pace both controllers. A status is
// delayed if the ReplicaSet has a controller and more than fewPods pods, and the status only raises counts
// and makes less than a third of the pods available. The delay is readyShare times the duration of the last
// status write, at most readyInterval. A Deployment with a surge of at most fewPods/2 pods is not delayed,
// because each pod counts.
const (
	readyShare    = 160
	readyInterval = 2 * time.Second
	fewPods       = 14
)

// statusInterval returns the minimum time since the last status write, or 0. took is the duration of that
// write, client-side rate limiting included.
func statusInterval(rs *appsv1.ReplicaSet, to appsv1.ReplicaSetStatus, took time.Duration) time.Duration {
	size, more := int(to.Replicas), int(to.AvailableReplicas-rs.Status.AvailableReplicas)
	desired, err := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/desired-replicas"])
	if err == nil {
		size = desired // of the Deployment
	}
	most, err := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/max-replicas"])
	switch {
	case sameCounts(rs.Status, to) && len(rs.Status.Conditions) == len(to.Conditions) && rs.Status.ObservedGeneration == to.ObservedGeneration:
		return failureInterval
	case onlyFewerTerminating(rs.Status, to):
		return terminatingInterval
	case err == nil && most-desired <= fewPods/2:
		return 0
	case size > fewPods && 3*more < size && metav1.GetControllerOfNoCopy(rs) != nil && onlyMore(rs, to):
		return min(readyShare*took, readyInterval)
	}
	return 0
}

// putStatus writes the status with the counts over rs, which must have the current version. It returns the requeue
// delay if the write can wait.
func (c *Controller) putStatus(ctx context.Context, t syncState, rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus,
	a applyResult) (requeueAfter time.Duration, err error) {
	status.ObservedGeneration, status.Conditions = t.rs.Generation, newConditions(rs.Status.Conditions, a, t.now)
	shown := status
	if rs.Status.TerminatingReplicas == nil && c.dropsTerminating.Load() {
		shown.TerminatingReplicas = nil
	}
	if sameStatus(rs.Status, shown) {
		return 0, nil
	}
	if wait := t.backoffs.statusAt.Add(statusInterval(rs, shown, t.backoffs.statusTook)).Sub(t.now); wait > 0 {
		return wait, nil
	}
	update := rs.DeepCopy()       // marshalling writes to its argument, and rs may be cached
	update.Spec.Template.UID = "" // see caches.KeptDigest
	update.Status = status
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", status.Replicas, "ready", status.ReadyReplicas,
		"available", status.AvailableReplicas, "generation", rs.Generation)
	sent := c.Clock.Now()
	written, err := c.Client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	if outcome.IsNotFound(err, rs.Name) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("write status: %w", err)
	}
	t.backoffs.statusAt = c.Clock.Now()
	t.backoffs.statusTook = t.backoffs.statusAt.Sub(sent)
	t.expectations.barrier.RequireVersion(c.replicaSets, written.ResourceVersion, t.now)
	c.dropsTerminating.Store(status.TerminatingReplicas != nil && written.Status.TerminatingReplicas == nil)
	return 0, nil
}
