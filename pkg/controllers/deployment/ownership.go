package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/ownerpatch"
)

// errMoved ends a sync for which something has changed since it was read. It is not a failure: the cache will show it.
var errMoved = errors.New("changed since it was read")

// owners adopts and releases ReplicaSets.
type owners struct {
	client   kubernetes.Interface
	sets     *caches.ReplicaSets
	read     *reader
	recorder record.EventRecorder
	clock    clock.Clock
}

// adoptAndRelease sorts the ReplicaSets, then adopts and releases, and returns those that count, and when to try again what was refused. Errors other
// than a definite refusal of one ReplicaSet end the sync, because wrong sizes would follow.
func (o *owners) adoptAndRelease(ctx context.Context, t task) (mine []*appsv1.ReplicaSet, again time.Duration, err error) {
	c := claim(t.d, t.selector, t.sets)
	if t.d.DeletionTimestamp != nil {
		return c.mine, 0, nil
	}
	toAdopt, adoptLater := ownerpatch.Admitted(t.throttle.ownership, c.adopt, t.now)
	toRelease, releaseLater := ownerpatch.Admitted(t.throttle.ownership, c.release, t.now)
	again = controller.MinPositive(adoptLater, releaseLater)
	if len(toAdopt) > 0 {
		if err := o.mayAdopt(ctx, t); err != nil {
			return nil, 0, err
		}
	}
	for _, rs := range toAdopt {
		body, err := ownerpatch.Adopt(rs, controllerRef(t.d))
		if err != nil {
			return nil, 0, err
		}
		adopted, refused, err := o.patch(ctx, t, rs, body, "Adopt")
		if err != nil {
			return nil, 0, err
		}
		again = controller.MinPositive(again, refused)
		switch {
		case adopted == nil:
		case controls(t.d, adopted):
			c.mine = append(c.mine, adopted)
		default:
			again = controller.MinPositive(again, o.refuse(t, adopted, "Adopt", errors.New("it has another owner, or none, after that")))
		}
	}
	for _, rs := range toRelease {
		body, err := ownerpatch.Release(rs, t.d.UID)
		if err != nil {
			return nil, 0, err
		}
		_, refused, err := o.patch(ctx, t, rs, body, "Release")
		if err != nil {
			return nil, 0, err
		}
		again = controller.MinPositive(again, refused)
	}
	return c.mine, again, nil
}

// mayAdopt makes sure that the Deployment of the cache still exists and is not being deleted. It is asked after the ReplicaSets were listed:
// one orphaned by the deletion of its Deployment must not be taken back by a cached copy of it.
func (o *owners) mayAdopt(ctx context.Context, t task) error {
	o.read.metrics.liveReads.WithLabelValues(readAdopt).Inc()
	d, err := o.read.deployment(ctx, t.d)
	if err != nil {
		return err
	}
	if d.DeletionTimestamp != nil {
		return fmt.Errorf("adopt ReplicaSets: Deployment %s is being deleted since %v", t.d.Name, d.DeletionTimestamp)
	}
	return nil
}

// patch changes the owner reference of a ReplicaSet that still is the version that was judged. It returns nil and no error if the ReplicaSet is gone,
// or if the API server refused, with how long to leave it alone. verb is Adopt or Release.
func (o *owners) patch(ctx context.Context, t task, rs *appsv1.ReplicaSet, body []byte, verb string) (*appsv1.ReplicaSet, time.Duration, error) {
	if controller.Draining(ctx) {
		return nil, 0, controller.ErrDraining
	}
	reply, err := o.client.AppsV1().ReplicaSets(rs.Namespace).Patch(ctx, rs.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	switch {
	case err == nil:
		t.ledger.barrier.Require(o.sets, reply.ResourceVersion, t.now)
		delete(t.throttle.ownership, rs.UID)
		klog.FromContext(ctx).V(2).Info("Changed the owner of a ReplicaSet", "change", verb, "replicaSet", klog.KObj(rs))
		reply.ManagedFields = nil
		return reply, 0, nil
	case apierrors.IsNotFound(err):
		return nil, 0, nil
	case apierrors.IsConflict(err):
		return nil, 0, errMoved
	case ownerpatch.Refused(err):
		if verb == "Release" && apierrors.IsInvalid(err) {
			return nil, 0, nil // it is another under the old name, or has no such reference
		}
		return nil, o.refuse(t, rs, verb, err), nil
	}
	return nil, 0, fmt.Errorf("%s ReplicaSet %s: %w", strings.ToLower(verb), rs.Name, err)
}

// refuse notes that a ReplicaSet cannot be adopted or released, tells why, and returns for how long it is left alone; see [ownerpatch.Forget].
func (o *owners) refuse(t task, rs *appsv1.ReplicaSet, verb string, why error) time.Duration {
	o.recorder.Eventf(t.d, corev1.EventTypeWarning, "Failed"+verb, "Failed to %s replica set %s: %v", strings.ToLower(verb), rs.Name, why)
	return t.throttle.ownership.Note(rs, o.clock.Now())
}
