package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
)

// statusWriter writes the status of ReplicaSets.
type statusWriter struct {
	client      kubernetes.Interface
	sets        *caches.ReplicaSets
	read        *reader
	clock       clock.PassiveClock
	terminating bool // status.terminatingReplicas is filled
}

// write writes the status if it has changed, and returns when to look again; 0: no need. The counts include the creates and deletes of this sync that were
// answered with success. Those whose outcome is unknown do not count; the events that show it bring the next sync.
func (w *statusWriter) write(ctx context.Context, t task, claimed claims, a applied) (again time.Duration, err error) {
	if newest, ok := w.sets.Get(t.key); ok && newest.UID == t.rs.UID && newest.Generation > t.rs.Generation {
		return 0, nil // the numbers were made for another spec, and would be refused; its event brings the next sync
	}
	c := w.count(t, claimed)
	again, err = w.put(ctx, t, t.rs, c, a)
	if !apierrors.IsConflict(err) {
		return again, err
	}
	stored, err := w.read.set(ctx, t.rs)
	switch {
	case errors.Is(err, live.ErrReplaced):
		return 0, nil
	case err != nil:
		return 0, err
	case stored.Generation != t.rs.Generation:
		return 0, nil // the numbers were made for another spec; its event brings the next sync
	case !sameNumbers(stored.Status, t.rs.Status):
		// They were written by a manager before us, or by ourselves without an answer. Whose pods are newer shows once the cache has them.
		t.ledger.barrier.Require(w.sets, stored.ResourceVersion, t.now)
		return controller.BarrierRecheck, nil
	}
	again, err = w.put(ctx, t, stored, c, a)
	if apierrors.IsConflict(err) {
		return controller.BarrierRecheck, nil // somebody writes all the time, and each write wakes us
	}
	return again, err
}

func (w *statusWriter) count(t task, claimed claims) counts {
	terminating := claimed.terminating
	if !w.terminating || t.throttle.noTerminating == t.rs.Generation {
		terminating = -1
	}
	return count(t.rs, claimed.mine, terminating, t.now)
}

// changesNumbers reports whether the status will have other numbers than it has.
func (w *statusWriter) changesNumbers(t task, claimed claims) bool {
	status := statusOf(t.rs.Status, t.rs.Generation, w.count(t, claimed), applied{held: true}, t.now)
	if t.rs.Status.TerminatingReplicas == nil {
		status.TerminatingReplicas = nil // nobody has told that one yet
	}
	return !sameNumbers(t.rs.Status, status)
}

// endingEvery is the least time between two statuses of which the second only lowers terminatingReplicas, and not to zero. Pods end one by one, and
// little waits for any but the last: a Deployment controller that replaces pods only when they are gone sees their room in steps of up to that long.
const endingEvery = time.Second

// If the ReplicaSet has a controller and more than fewPods pods, a status that only raises the ready or available count waits readyShare times as long as
// the last status write took, at most readyEvery: 0.1 s where a write takes 5 ms. So a busy API server is not kept busy with numbers that change again
// at once, each of which would bring a status of the owner, and perhaps another size. Of few pods each may be the one that somebody waits for: a Deployment
// of fewPods replaces seven at a time by default.
const (
	readyShare = 20
	readyEvery = time.Second
	fewPods    = 14
)

// pace is how long after the last status one is written, when that took so long, what --kube-api-qps made it wait included; 0: at once.
func pace(rs *appsv1.ReplicaSet, to appsv1.ReplicaSetStatus, took time.Duration) time.Duration {
	switch {
	case onlyFewerEnding(rs.Status, to):
		return endingEvery
	case to.Replicas > fewPods && metav1.GetControllerOfNoCopy(rs) != nil && onlyMoreReady(rs, to):
		return min(readyShare*took, readyEvery)
	}
	return 0
}

// put writes the status over rs, which must be the version that the API server has, and returns when to look again if that can wait.
func (w *statusWriter) put(ctx context.Context, t task, rs *appsv1.ReplicaSet, c counts, a applied) (again time.Duration, err error) {
	status := statusOf(rs.Status, rs.Generation, c, a, t.now)
	if sameStatus(rs.Status, status) {
		return 0, nil
	}
	if wait := t.throttle.statusAt.Add(pace(rs, status, t.throttle.statusTook)).Sub(t.now); wait > 0 {
		return wait, nil
	}
	update := rs.DeepCopy() // marshalling writes to what it is given, and rs may be the cache's
	update.Status = status
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", c.replicas, "ready", c.ready, "available", c.available, "generation", rs.Generation)
	sent := w.clock.Now()
	written, err := w.client.AppsV1().ReplicaSets(rs.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil // deleted
	}
	if err != nil {
		return 0, fmt.Errorf("write status: %w", err)
	}
	t.throttle.statusAt = w.clock.Now()
	t.throttle.statusTook = t.throttle.statusAt.Sub(sent)
	t.ledger.barrier.Require(w.sets, written.ResourceVersion, t.now)
	if status.TerminatingReplicas != nil && written.Status.TerminatingReplicas == nil {
		t.throttle.noTerminating = rs.Generation // the field is off in that API server; do not write it again and again
	}
	return 0, nil
}
