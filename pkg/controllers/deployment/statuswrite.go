package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// pace is the least time between two statuses of which the second has only new numbers that nobody waits for (see urgent): each pod that becomes ready or
// ends changes them. It is also the longest that an old ReplicaSet may take to act on its last size before it gives up more pods. It is 2 s, or a twentieth
// of progressDeadlineSeconds if that is less: a step that waits is no progress, and progress that was not written is lost with this process.
func (p pass) statusInterval() time.Duration {
	if deadline := p.progressDeadline(); deadline > 0 {
		return min(maxStatusInterval, deadline/20)
	}
	return maxStatusInterval
}

const maxStatusInterval = 2 * time.Second

// statusWriter writes the status of Deployments, in one request for each sync.
type statusWriter struct {
	client      kubernetes.Interface
	deployments *caches.Deployments
	clock       clock.Clock
}

// changes reports whether there is anything to write.
func (w *statusWriter) needsWrite(t syncState, status appsv1.DeploymentStatus, revision string) bool {
	return revision != "" && t.d.Annotations[revisionAnnotation] != revision || !equality.Semantic.DeepEqual(t.d.Status, status)
}

// write writes the status and the revision if they have changed, and returns when to look again if that can wait. The endpoint of statuses takes
// annotations, too, and does not raise the generation. A conflict is no failure: somebody has changed the Deployment, and its event brings the next sync.
func (w *statusWriter) write(ctx context.Context, t syncState, status appsv1.DeploymentStatus, revision string) (again time.Duration, err error) {
	if !w.needsWrite(t, status, revision) {
		return 0, nil
	}
	if wait := t.backoffs.statusAt.Add(pass{d: t.d}.statusInterval()).Sub(w.clock.Now()); wait > 0 && !isUrgent(t.d, status, revision) {
		return wait, nil
	}
	if newest, ok := w.deployments.Get(t.key); ok && newest.UID == t.d.UID && newest.Generation > t.d.Generation {
		return controller.ConsistencyRecheck, nil // the API server would return a conflict
	}
	if controller.Draining(ctx) {
		return 0, controller.ErrDraining
	}
	update := t.d.DeepCopy() // marshalling writes to what it is given, and the Deployment may be the cache's
	update.Status = status
	if revision != "" {
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, revisionAnnotation, revision)
	}
	klog.FromContext(ctx).V(4).Info("Updating status", "replicas", status.Replicas, "updated", status.UpdatedReplicas, "available", status.AvailableReplicas,
		"generation", status.ObservedGeneration)
	written, err := w.client.AppsV1().Deployments(update.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil // deleted
	case apierrors.IsConflict(err):
		return controller.ConsistencyRecheck, nil
	case err != nil:
		return 0, fmt.Errorf("write status: %w", err)
	}
	t.backoffs.statusAt = w.clock.Now()
	t.expectations.barrier.WroteAt(w.deployments, written.ResourceVersion, t.now)
	return 0, nil
}

// urgent reports whether somebody may wait for what a status tells, so that it is written at once: another observed generation, revision or collisionCount,
// completion or its end, all replicas updated or no longer, fewer pods available although no old ones are left, or another condition. That Progressing
// goes from its first reason (created, found) to ReplicaSetUpdated is not urgent.
func isUrgent(d *appsv1.Deployment, status appsv1.DeploymentStatus, revision string) bool {
	was := d.Status
	replicas := replicasOrOne(d.Spec.Replicas)
	return was.ObservedGeneration != status.ObservedGeneration ||
		revision != "" && d.Annotations[revisionAnnotation] != revision ||
		!equality.Semantic.DeepEqual(was.CollisionCount, status.CollisionCount) ||
		isComplete(d, was) != isComplete(d, status) ||
		(int(was.UpdatedReplicas) == replicas) != (int(status.UpdatedReplicas) == replicas) ||
		status.AvailableReplicas < was.AvailableReplicas && was.Replicas == was.UpdatedReplicas && status.Replicas == status.UpdatedReplicas ||
		!slices.EqualFunc(was.Conditions, status.Conditions, func(a, b appsv1.DeploymentCondition) bool {
			return a.Type == b.Type && a.Status == b.Status && (a.Reason == b.Reason || begun(a.Reason) && b.Reason == reasonProgressing)
		})
}

// begun reports whether a reason of Progressing says that a rollout has begun.
func begun(reason string) bool { return reason == reasonCreated || reason == reasonFound }
