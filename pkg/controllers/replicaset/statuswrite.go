package replicaset

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
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
	"minikcm/pkg/outcome"
)

// statusWriter writes the status of ReplicaSets.
type statusWriter struct {
	client      kubernetes.Interface
	sets        *caches.ReplicaSets
	read        *reader
	clock       clock.PassiveClock
	terminating bool // status.terminatingReplicas is filled

	dropsTerminating atomic.Bool // the API server dropped status.terminatingReplicas from the last status
}

// write writes the status if it has changed, and returns when to look again; 0: no need. The counts include the creates and deletes of this sync that were
// answered with success. Those whose outcome is unknown do not count; the events that show it bring the next sync.
func (w *statusWriter) write(ctx context.Context, t task, claimed claims, a applied) (again time.Duration, err error) {
	brief := w.clock.Since(t.now) < longSync
	if newest, ok := w.sets.Get(t.key); ok && newest.UID == t.rs.UID && newest.Generation > t.rs.Generation && brief {
		return 0, nil // the event of the newer spec brings the next sync, which has newer numbers
	}
	c := w.count(t, claimed)
	again, err = w.put(ctx, t, t.rs, c, a)
	// Admission sees the template, which the cache lacks for a ReplicaSet that wants no pods.
	incomplete := outcome.FromError(err) == outcome.Rejected && len(t.rs.Spec.Template.Spec.Containers) == 0
	if !apierrors.IsConflict(err) && !incomplete {
		return again, err
	}
	stored, err := w.read.set(ctx, t.rs)
	switch {
	case errors.Is(err, live.ErrReplaced):
		return 0, nil
	case err != nil:
		return 0, err
	case stored.Generation != t.rs.Generation && brief:
		return 0, nil // likewise
	case !sameNumbers(stored.Status, t.rs.Status):
		// They were written by a manager before us, or by ourselves without an answer. Whose pods are newer shows once the cache has them.
		t.ledger.barrier.WroteAt(w.sets, stored.ResourceVersion, t.now)
		return controller.ConsistencyRecheck, nil
	}
	again, err = w.put(ctx, t, stored, c, a)
	if apierrors.IsConflict(err) {
		return controller.ConsistencyRecheck, nil // somebody writes all the time, and each write wakes us
	}
	return again, err
}

func (w *statusWriter) count(t task, claimed claims) counts {
	terminating := claimed.terminating
	if !w.terminating {
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

// longSync is the duration from which a sync writes its status although the spec has changed. The next sync may last as long, while pods become ready.
const longSync = time.Second

// endingEvery is the least time between two statuses of which the second only lowers terminatingReplicas, and not to zero. Pods end one by one, and
// little waits for any but the last: a Deployment controller that replaces pods only when they are gone sees their room in steps of up to that long.
const endingEvery = time.Second

// Steps of a rolling update follow the statuses of ReplicaSets, so this is the only clock of both. If a ReplicaSet has a controller and more than fewPods
// pods, a status that makes less than a third of them available, and only raises other counts besides, waits readyShare times as long as the last status
// write took, at most readyEvery. With the default bounds, half of the pods are on their way at once, and seven of fewPods. A Deployment with a surge of
// seven pods at most may have no more on their way, and each counts.
const (
	readyShare = 160
	readyEvery = 2 * time.Second
	fewPods    = 14
)

// pace is how long after the last status one is written, when that took so long, what --kube-api-qps made it wait included; 0: at once.
func pace(rs *appsv1.ReplicaSet, to appsv1.ReplicaSetStatus, took time.Duration) time.Duration {
	size, more := int(to.Replicas), int(to.AvailableReplicas-rs.Status.AvailableReplicas)
	desired, err := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/desired-replicas"])
	if err == nil {
		size = desired // of the Deployment
	}
	most, err := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/max-replicas"])
	switch {
	case onlyFewerEnding(rs.Status, to):
		return endingEvery
	case err == nil && most-desired <= fewPods/2: // the surge
		return 0
	case size > fewPods && 3*more < size && metav1.GetControllerOfNoCopy(rs) != nil && onlyMore(rs, to):
		return min(readyShare*took, readyEvery)
	}
	return 0
}

// put writes the status over rs, which must be the version that the API server has, and returns when to look again if that can wait.
func (w *statusWriter) put(ctx context.Context, t task, rs *appsv1.ReplicaSet, c counts, a applied) (again time.Duration, err error) {
	status := statusOf(rs.Status, t.rs.Generation, c, a, t.now)
	shown := status
	if rs.Status.TerminatingReplicas == nil && w.dropsTerminating.Load() {
		shown.TerminatingReplicas = nil
	}
	if sameStatus(rs.Status, shown) {
		return 0, nil
	}
	if wait := t.throttle.statusAt.Add(pace(rs, shown, t.throttle.statusTook)).Sub(t.now); wait > 0 {
		return wait, nil
	}
	update := rs.DeepCopy() // marshalling writes to what it is given, and rs may be the cache's
	update.Spec.Template.UID = ""
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
	t.ledger.barrier.WroteAt(w.sets, written.ResourceVersion, t.now)
	w.dropsTerminating.Store(status.TerminatingReplicas != nil && written.Status.TerminatingReplicas == nil)
	return 0, nil
}
