package deployment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// terminatingRecheck is the time until a create is repeated in a terminating namespace. The response may concern an
// earlier namespace of this name.
const terminatingRecheck = time.Minute

type createResult struct {
	set          *appsv1.ReplicaSet // created by this request; nil if there is none
	outdated     bool               // the ReplicaSet exists, or its name is free again: the next sync decides
	collision    bool               // the name belongs to another ReplicaSet: collisionCount has to rise
	deferred     deferral
	message      string // for the condition Progressing
	err          error
	requeueAfter time.Duration
}

// createNew creates the new ReplicaSet. If the name is taken, the ReplicaSet of that name is read: an earlier
// attempt without a response or another manager may have created it.
func (c *Controller) createNew(ctx context.Context, t syncState, want *appsv1.ReplicaSet) createResult {
	if controller.Draining(ctx) {
		return createResult{err: controller.ErrDraining}
	}
	if _, there := c.replicaSets.Get(cache.NewObjectName(want.Namespace, want.Name)); there {
		return c.findByName(ctx, t, want, unknownCreate{}, outcome.Exists, nil)
	}
	// A ReplicaSet gets no pods before admission has left it unmodified once. The next sync raises it.
	if t.memory.modifiedBackoff(want.Name).tries > 0 {
		want = want.DeepCopy()
		want.Spec.Replicas = ptr.To[int32](0)
	}
	earlier := t.expectations.startCreate(want.Name, replicasOrOne(want.Spec.Replicas), c.Clock.Now())
	var got *appsv1.ReplicaSet
	res, err := outcome.Do(ctx, func(ctx context.Context) (err error) {
		got, err = c.Client.AppsV1().ReplicaSets(want.Namespace).Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
		return err
	})
	switch {
	case res == outcome.Done:
		return c.handleCreated(ctx, t, want, got)
	case res == outcome.Exists, res == outcome.Rejected && earlier != (unknownCreate{}):
		return c.findByName(ctx, t, want, earlier, res, err)
	}
	return c.handleNotCreated(t, want, earlier, res, err)
}

// handleCreated records a created ReplicaSet. A Deployment does not recognize a ReplicaSet whose template, labels
// or owner were modified during admission, and would create further ones without end. Such a ReplicaSet is deleted
// at once, and creates of that name back off.
func (c *Controller) handleCreated(ctx context.Context, t syncState, want, got *appsv1.ReplicaSet) createResult {
	delete(t.expectations.creates, want.Name)
	t.expectations.barrier.RequireVersion(c.replicaSets, got.ResourceVersion, t.now)
	klog.FromContext(ctx).V(2).Info("Created ReplicaSet", "replicaSet", klog.KObj(got), "revision", revisionOf(got.Annotations))
	if !sameTemplate(&want.Spec.Template, &got.Spec.Template) || !t.selects(got) || !controls(t.d, got) {
		return c.deleteModified(ctx, t, got)
	}
	c.reportScaled(ctx, t, change{rs: got, to: replicasOrOne(got.Spec.Replicas)})
	t.memory.collisions, t.memory.modified = backoff{}, backoff{}
	return createResult{set: got}
}

func (c *Controller) deleteModified(ctx context.Context, t syncState, rs *appsv1.ReplicaSet) createResult {
	now := c.Clock.Now()
	t.memory.modifiedName, t.memory.modified = rs.Name, t.memory.modifiedBackoff(rs.Name).next(minModified, maxModified, now)
	message := fmt.Sprintf("Deleting new replica set %q: its template, labels or owner were modified during admission", rs.Name)
	c.recorder.Event(t.d, corev1.EventTypeWarning, "ReplicaSetChanged", message)
	err := c.Client.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &rs.UID}})
	switch outcome.FromError(err) {
	case outcome.Done, outcome.NotFound, outcome.Conflict:
		err = nil
	default:
		err = fmt.Errorf("delete ReplicaSet %s, modified during admission: %w", rs.Name, err)
	}
	return createResult{deferred: deferCreateBackoff, message: message, err: err, requeueAfter: t.memory.modified.remaining(now)}
}

// findByName reads the ReplicaSet of a name that is taken, or that an earlier attempt may have created.
func (c *Controller) findByName(ctx context.Context, t syncState, want *appsv1.ReplicaSet, earlier unknownCreate,
	res outcome.Outcome, rejection error) createResult {
	found, err := c.readReplicaSet(ctx, want.Namespace, want.Name)
	switch {
	case err != nil:
		return createResult{err: errors.Join(rejection, err)}
	case found == nil && res == outcome.Exists:
		t.expectations.endCreate(want.Name, earlier) // deleted since
		return createResult{outdated: true}
	case found == nil:
		return c.handleNotCreated(t, want, earlier, res, rejection) // the earlier attempt may still be carried out
	case controls(t.d, found) && t.selects(found) && found.DeletionTimestamp == nil && sameTemplate(&found.Spec.Template, &t.d.Spec.Template):
		delete(t.expectations.creates, want.Name)
		t.expectations.barrier.RequireVersion(c.replicaSets, found.ResourceVersion, t.now)
		if earlier != (unknownCreate{}) {
			c.reportScaled(ctx, t, change{rs: found, to: replicasOrOne(found.Spec.Replicas)})
		}
		return createResult{outdated: true}
	}
	delete(t.expectations.creates, want.Name)
	now := c.Clock.Now()
	if wait := t.memory.collisions.remaining(now); wait > 0 {
		return createResult{deferred: deferCreateBackoff, requeueAfter: wait}
	}
	t.memory.collisions = t.memory.collisions.next(minCollision, maxCollision, now)
	klog.FromContext(ctx).V(2).Info("Name of the new ReplicaSet is taken, counting a collision",
		"replicaSet", klog.KObj(found), "owner", metav1.GetControllerOf(found))
	return createResult{collision: true}
}

// handleNotCreated records a rejected create, or one with an unknown outcome.
func (c *Controller) handleNotCreated(t syncState, want *appsv1.ReplicaSet, earlier unknownCreate, res outcome.Outcome, err error) createResult {
	if res == outcome.Unknown {
		t.expectations.startCreate(want.Name, 0, c.Clock.Now())
	} else {
		t.expectations.endCreate(want.Name, earlier)
	}
	err = fmt.Errorf("create ReplicaSet %s: %w", want.Name, err)
	r := createResult{err: err}
	switch res {
	case outcome.Terminating:
		return createResult{deferred: deferTerminating, requeueAfter: terminatingRecheck}
	case outcome.Rejected, outcome.NotFound: // a conflict, for instance of a quota, is retried at once
		r.deferred = deferCreateBackoff
	}
	if !isCanceled(err) {
		r.message = fmt.Sprintf("Failed to create new replica set %q: %v", want.Name, outcome.EventMessage(errors.Unwrap(err)))
		c.recorder.Event(t.d, corev1.EventTypeWarning, reasonCreateFailed, r.message)
	}
	return r
}

// newReplicaSet returns the ReplicaSet for the template of a Deployment. The name depends only on the template and
// the collisionCount. The ReplicaSet shares no memory with the Deployment: marshalling would change quantities of
// the cached template, and so the hash.
func newReplicaSet(d *appsv1.Deployment, old []replicaSet, size int) *appsv1.ReplicaSet {
	template := *d.Spec.Template.DeepCopy()
	hash := templateHash(template, d.Status.CollisionCount)

	label := labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: hash}
	template.Labels = labels.Merge(template.Labels, label)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = labels.Merge(selector.MatchLabels, label)
	annotations := nextAnnotations(d, nil, old)
	maps.Copy(annotations, sizeAnnotations(boundsOf(d)))
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            replicaSetName(d.Name, hash),
			Namespace:       d.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, ownerKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32(size)),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
}
