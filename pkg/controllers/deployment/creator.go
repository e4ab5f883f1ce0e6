package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// terminatingRecheck repeats a create after an answer that the namespace is terminating. The answer may be about an earlier namespace of this name.
const terminatingRecheck = time.Minute

// createFate is how the creation of a ReplicaSet stands.
type createOutcome int

const (
	createUnknown   createOutcome = iota // nobody knows, or it was not tried: nothing else is written in this sync but the status
	createDone                           // it was made by this request
	createExists                         // it is there, made by another attempt or another manager: the cache will show it
	createNameTaken                      // its name is another's, and collisionCount is to rise
	createRejected                       // it was not made, or was modified by admission and deleted: none is to be created for the time being
)

// creation is what became of the creation of a ReplicaSet.
type createResult struct {
	outcome      createOutcome
	set          *appsv1.ReplicaSet // if done
	deferred     deferral           // if refused, or if the name is taken and collisionCount is not to rise yet
	message      string             // for the condition Progressing; empty: it stays
	err          error
	requeueAfter time.Duration
}

// create makes the ReplicaSet of the present template. A name that is taken is looked at: an attempt of ours that was not answered may have taken it,
// or another manager who made the same.
func (w *writer) createNew(ctx context.Context, t syncState, want *appsv1.ReplicaSet) createResult {
	if controller.Draining(ctx) {
		return createResult{outcome: createUnknown, err: controller.ErrDraining}
	}
	if _, there := w.sets.Get(cache.NewObjectName(want.Namespace, want.Name)); there {
		return w.findByName(ctx, t, want, controller.Create{Name: want.Name}, outcome.Exists, nil)
	}
	attempt := t.expectations.startCreate(want.Name, replicasOrOne(want.Spec.Replicas), w.clock.Now())
	var got *appsv1.ReplicaSet
	res, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		got, err = w.client.AppsV1().ReplicaSets(want.Namespace).Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		return err
	})
	switch {
	case res == outcome.Done:
		return w.handleCreated(ctx, t, want, got)
	case res == outcome.Exists, res == outcome.Rejected && attempt.Unknown:
		return w.findByName(ctx, t, want, attempt, res, err)
	}
	return w.handleNotCreated(t, want, attempt, res, err)
}

// made handles a ReplicaSet that the API server has created. If admission has modified its template, labels or owner, the Deployment would not find it again and
// create the next ReplicaSet, without end. Such a ReplicaSet is deleted at once, and creates of that name back off.
func (w *writer) handleCreated(ctx context.Context, t syncState, want, got *appsv1.ReplicaSet) createResult {
	got.ManagedFields = nil
	t.expectations.endCreate(want.Name)
	t.expectations.barrier.WroteAt(w.sets, got.ResourceVersion, t.now)
	size := replicasOrOne(got.Spec.Replicas)
	klog.FromContext(ctx).V(2).Info("Created ReplicaSet", "replicaSet", klog.KObj(got), "replicas", size, "revision", revisionOf(got.Annotations))
	if !sameTemplate(&want.Spec.Template, &got.Spec.Template) || !t.selects(got) || !controls(t.d, got) {
		return w.deleteModified(ctx, t, got)
	}
	if size > 0 {
		w.recorder.Eventf(t.d, corev1.EventTypeNormal, reasonScaling, "Scaled up replica set %s from 0 to %d", got.Name, size)
	}
	t.backoffs.collisions, t.backoffs.modified = backoff{}, backoff{}
	return createResult{outcome: createDone, set: got}
}

func (w *writer) deleteModified(ctx context.Context, t syncState, rs *appsv1.ReplicaSet) createResult {
	now := w.clock.Now()
	t.backoffs.modifiedName, t.backoffs.modified = rs.Name, t.backoffs.modifiedBackoff(rs.Name).next(minModified, maxModified, now)
	message := fmt.Sprintf("Deleting new replica set %q: its template, labels or owner were modified during admission", rs.Name)
	w.recorder.Event(t.d, corev1.EventTypeWarning, "ReplicaSetChanged", message)
	err := w.client.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rs.UID}})
	switch outcome.FromError(err) {
	case outcome.Done, outcome.NotFound, outcome.Conflict:
		err = nil
	default:
		err = fmt.Errorf("delete ReplicaSet %s, modified during admission: %w", rs.Name, err)
	}
	return createResult{outcome: createRejected, deferred: deferCreateBackoff, message: message, err: err, requeueAfter: t.backoffs.modified.remaining(now)}
}

// explain looks for the ReplicaSet that has the name.
func (w *writer) findByName(ctx context.Context, t syncState, want *appsv1.ReplicaSet, attempt controller.Create, res outcome.Outcome, refusal error) createResult {
	found, err := w.read.replicaSet(ctx, want.Namespace, want.Name, readNameTaken)
	switch {
	case err != nil:
		attempt.Unknown, attempt.Until = true, w.clock.Now().Add(outcome.MaxCompletionDelay)
		t.expectations.creates.Retry(attempt)
		return createResult{outcome: createUnknown, err: errors.Join(refusal, err)}
	case found == nil && res == outcome.Exists:
		t.expectations.creates.Retry(attempt) // it was there a moment ago, and the name is free again
		return createResult{outcome: createExists}
	case found == nil:
		return w.handleNotCreated(t, want, attempt, res, refusal) // the earlier attempt may still be on its way
	case controls(t.d, found) && t.selects(found) && found.DeletionTimestamp == nil && sameTemplate(&found.Spec.Template, &t.d.Spec.Template):
		t.expectations.endCreate(want.Name)
		t.expectations.barrier.WroteAt(w.sets, found.ResourceVersion, t.now)
		if size := replicasOrOne(found.Spec.Replicas); attempt.Unknown && size > 0 {
			w.recorder.Eventf(t.d, corev1.EventTypeNormal, reasonScaling, "Scaled up replica set %s from 0 to %d", found.Name, size)
		}
		if t.live {
			return createResult{outcome: createUnknown, err: fmt.Errorf("ReplicaSet %s has the present template and is ours, but is not among those that the Deployment has", found.Name)}
		}
		if known, there := w.sets.Get(cache.NewObjectName(found.Namespace, found.Name)); there && known.UID == found.UID {
			t.expectations.cacheIncomplete = true
		}
		return createResult{outcome: createExists}
	}
	t.expectations.endCreate(want.Name)
	now := w.clock.Now()
	if wait := t.backoffs.collisions.remaining(now); wait > 0 {
		return createResult{outcome: createRejected, deferred: deferCreateBackoff, requeueAfter: wait}
	}
	t.backoffs.collisions = t.backoffs.collisions.next(minCollision, maxCollision, now)
	klog.FromContext(ctx).V(2).Info("The name of the new ReplicaSet is taken, counting a collision", "replicaSet", klog.KObj(found), "owner", metav1.GetControllerOf(found))
	return createResult{outcome: createNameTaken}
}

// notMade takes an answer that says that nothing was made, or says nothing.
func (w *writer) handleNotCreated(t syncState, want *appsv1.ReplicaSet, attempt controller.Create, res outcome.Outcome, err error) createResult {
	now := w.clock.Now()
	switch {
	case res == outcome.Unknown:
		attempt.Unknown, attempt.Until = true, now.Add(outcome.MaxCompletionDelay)
		t.expectations.creates.Retry(attempt)
	case attempt.Unknown:
		t.expectations.creates.Retry(attempt)
	default:
		t.expectations.endCreate(want.Name)
	}
	err = fmt.Errorf("create ReplicaSet %s: %w", want.Name, err)
	c := createResult{outcome: createUnknown, err: err}
	switch res {
	case outcome.Terminating:
		return createResult{outcome: createRejected, deferred: deferTerminating, requeueAfter: terminatingRecheck}
	case outcome.Rejected, outcome.NotFound: // a conflict, of a quota for instance, is gone at the next try
		c.outcome, c.deferred = createRejected, deferCreateBackoff
	}
	if !isCanceled(err) {
		c.message = fmt.Sprintf("Failed to create new replica set %q: %v", want.Name, outcome.EventMessage(errors.Unwrap(err)))
		w.recorder.Event(t.d, corev1.EventTypeWarning, reasonCreateFailed, c.message)
	}
	return c
}
