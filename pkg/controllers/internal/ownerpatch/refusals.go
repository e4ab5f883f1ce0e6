package ownerpatch

import (
	"maps"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controller"
)

// refusedFor is how long an object is left alone that the API server does not let us adopt or release, unless
// [Forget] ends that.
const refusedFor = time.Minute

// Refusals are the objects that the API server does not let us adopt or release for one owner. Nil is none.
// They belong to the sync of the owner.
type Refusals map[types.UID]refusal

type refusal struct {
	object metav1.Object // as it was
	until  time.Time
}

// Note notes that the owner of an object could not be changed, and returns for how long the object is left alone.
func (r *Refusals) Note(object metav1.Object, now time.Time) time.Duration {
	if *r == nil {
		*r = Refusals{}
	}
	(*r)[object.GetUID()] = refusal{object, now.Add(refusedFor)}
	return refusedFor
}

// Remaining returns the time until the first object may be tried again, or 0 if there is none.
func (r Refusals) Remaining(now time.Time) (first time.Duration) {
	for _, refused := range r {
		first = controller.MinPositive(first, refused.until.Sub(now))
	}
	return first
}

// Forget drops the refusals of objects that are not there any more, or have changed in what adoption and
// release go by: a status, of which there are many, leaves a refusal as it is.
func Forget[T metav1.Object](r Refusals, there []T) {
	if len(r) == 0 {
		return
	}
	objects := make(map[types.UID]T, len(there))
	for _, object := range there {
		objects[object.GetUID()] = object
	}
	maps.DeleteFunc(r, func(uid types.UID, refused refusal) bool {
		object, ok := objects[uid]
		return !ok || !same(object, refused.object)
	})
}

// same reports whether two states of an object have the same labels and owners, and are both being deleted or
// both not.
func same(a, b metav1.Object) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) && apiequality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		(a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil)
}

// Admitted leaves out the objects that were refused a moment ago, and says when to try the first of those; 0:
// there are none.
func Admitted[T metav1.Object](r Refusals, objects []T, now time.Time) (rest []T, again time.Duration) {
	for _, object := range objects {
		if wait := r[object.GetUID()].until.Sub(now); wait > 0 {
			again = controller.MinPositive(again, wait)
			continue
		}
		rest = append(rest, object)
	}
	return rest, again
}
