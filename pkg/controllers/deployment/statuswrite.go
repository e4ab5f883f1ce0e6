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

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// statusInterval is the minimum time between two status writes if only counts change, and the maximum time for
// which an old ReplicaSet may act on its last size before it shrinks again. With a short progressDeadlineSeconds it
// is a twentieth of that: steps that wait and counts that are not written are no progress.
func statusInterval(d *appsv1.Deployment) time.Duration {
	if deadline := progressDeadline(d); deadline > 0 {
		return min(maxStatusInterval, deadline/20)
	}
	return maxStatusInterval
}

const maxStatusInterval = 2 * time.Second

func (c *Controller) statusDiffers(t syncState, status appsv1.DeploymentStatus, revision string) bool {
	return revision != "" && t.d.Annotations[revisionAnnotation] != revision || !equality.Semantic.DeepEqual(t.d.Status, status)
}

// writeStatus writes the status and the revision if they have changed, and returns a requeue delay if the
// write can wait. The status endpoint accepts annotations and does not raise the generation.
func (c *Controller) writeStatus(ctx context.Context, t syncState, status appsv1.DeploymentStatus, revision string) (requeueAfter time.Duration, err error) {
	if !c.statusDiffers(t, status, revision) {
		return 0, nil
	}
	if wait := t.memory.statusAt.Add(statusInterval(t.d)).Sub(c.Clock.Now()); wait > 0 && !isUrgent(t.d, status, revision) {
		return wait, nil
	}
	if newest, ok := c.deployments.Get(t.key); ok && newest.UID == t.d.UID && newest.Generation > t.d.Generation {
		return controller.ConsistencyRecheck, nil // the API server would return a conflict
	}
	if controller.Draining(ctx) {
		return 0, controller.ErrDraining
	}
	update := t.d.DeepCopy() // marshalling changes quantities in place
	update.Status = status
	if revision != "" {
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, revisionAnnotation, revision)
	}
	written, err := c.Client.AppsV1().Deployments(update.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	switch {
	case outcome.IsNotFound(err, update.Name):
		return 0, nil
	case apierrors.IsConflict(err):
		return controller.ConsistencyRecheck, nil
	case err != nil:
		return 0, fmt.Errorf("write status: %w", err)
	}
	t.memory.statusAt = c.Clock.Now()
	t.expectations.barrier.RequireVersion(c.deployments, written.ResourceVersion, t.now)
	return 0, nil
}

// isUrgent reports whether clients may wait for a change of the status: generation, revision, collisionCount,
// completion, all replicas updated, fewer available pods without old ones, or a condition. The first progress of a
// rollout is not urgent.
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
			firstProgress := (a.Reason == reasonCreated || a.Reason == reasonFound) && b.Reason == reasonProgressing
			return a.Type == b.Type && a.Status == b.Status && (a.Reason == b.Reason || firstProgress)
		})
}
