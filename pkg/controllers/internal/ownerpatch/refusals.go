package ownerpatch

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controller"
)

// refusedFor is how long an object is left alone that the API server does not let us adopt or release, unless it changes.
const refusedFor = time.Minute

// Refusals are the objects that the API server does not let us adopt or release for one owner. Nil is none. They belong to the sync of the owner.
type Refusals map[types.UID]refusal

type refusal struct {
	version string
	until   time.Time
}

// Note notes that the owner of an object at a version could not be changed, and returns for how long the object is left alone.
func (r *Refusals) Note(object types.UID, version string, now time.Time) time.Duration {
	if *r == nil {
		*r = Refusals{}
	}
	(*r)[object] = refusal{version, now.Add(refusedFor)}
	return refusedFor
}

// Forget drops the refusals of objects that are not there any more, or have changed.
func Forget[T metav1.Object](r Refusals, there []T) {
	if len(r) == 0 {
		return
	}
	versions := make(map[types.UID]string, len(there))
	for _, object := range there {
		versions[object.GetUID()] = object.GetResourceVersion()
	}
	maps.DeleteFunc(r, func(uid types.UID, refused refusal) bool { return versions[uid] != refused.version })
}

// Admitted leaves out the objects that were refused a moment ago, and says when to try the first of those; 0: there are none.
func Admitted[T metav1.Object](r Refusals, objects []T, now time.Time) (rest []T, again time.Duration) {
	for _, object := range objects {
		if wait := r[object.GetUID()].until.Sub(now); wait > 0 {
			again = controller.Soonest(again, wait)
			continue
		}
		rest = append(rest, object)
	}
	return rest, again
}
