package deployment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// Reasons of events about rollbacks. All but the last are upstream's, as are the words.
const (
	reasonRollback          = "DeploymentRollback"
	reasonRollbackNotFound  = "DeploymentRollbackRevisionNotFound"
	reasonRollbackUnchanged = "DeploymentRollbackTemplateUnchanged"
	reasonRollbackFailed    = "DeploymentRollbackFailed"
)

// rollBack gives the Deployment the template and the annotations of an old ReplicaSet, and removes the annotation that asked for it.
func (w *writer) rollBack(ctx context.Context, t task, r rollback) error {
	update := t.d.DeepCopy()
	delete(update.Annotations, appsv1.DeprecatedRollbackTo)
	eventType, reason, message := corev1.EventTypeWarning, reasonRollbackNotFound, "Unable to find the revision to rollback to."
	switch {
	case r.to != nil:
		rs, err := w.read.set(ctx, r.to.Namespace, r.to.Name, readRollback) // the cache has no template of a ReplicaSet without pods
		if err != nil {
			return err
		}
		if rs == nil || rs.UID != r.to.UID {
			return errMoved
		}
		if sameTemplate(&rs.Spec.Template, &t.d.Spec.Template) {
			reason, message = reasonRollbackUnchanged, unchanged(t.d)
			break
		}
		update.Spec.Template = caches.WithoutHash(&rs.Spec.Template)
		update.Annotations = rolledBack(update.Annotations, rs.Annotations)
		eventType, reason = corev1.EventTypeNormal, reasonRollback
		message = fmt.Sprintf("Rolled back deployment %q to revision %d", t.d.Name, r.revision)
	case r.problem == rollbackNoLast:
		message = "Unable to find last revision."
	case r.problem == rollbackUnchanged:
		reason, message = reasonRollbackUnchanged, unchanged(t.d)
	}
	if controller.Draining(ctx) {
		return controller.ErrDraining
	}
	written, err := w.client.AppsV1().Deployments(update.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	switch outcome.FromError(err) {
	case outcome.Done:
		t.ledger.barrier.Require(w.deployments, written.ResourceVersion, t.now)
		klog.FromContext(ctx).V(2).Info("Took the annotation that asks for a rollback", "reason", reason, "revision", r.revision)
		w.recorder.Event(t.d, eventType, reason, message)
		return nil
	case outcome.Conflict, outcome.NotFound:
		return errMoved
	case outcome.Rejected:
		w.recorder.Eventf(t.d, corev1.EventTypeWarning, reasonRollbackFailed, "Failed to roll back deployment %q: %v", t.d.Name, outcome.EventMessage(err))
	}
	return fmt.Errorf("roll back: %w", err)
}

func unchanged(d *appsv1.Deployment) string {
	return fmt.Sprintf("The rollback revision contains the same template as current deployment %q", d.Name)
}

// rolledBack are the annotations of a Deployment that gets back those of a ReplicaSet: what was written by users then, and what is about one object
// alone from now.
func rolledBack(now, then map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range now {
		if ours(key) {
			out[key] = value
		}
	}
	for key, value := range then {
		if !ours(key) {
			out[key] = value
		}
	}
	return out
}
