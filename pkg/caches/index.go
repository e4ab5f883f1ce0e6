package caches

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// owned is the store of a type whose objects may have controllers.
type owned[T metav1.Object] struct{ Store[T] }

// byController is the index by UID of the controller, or orphan/<namespace>.
const byController = "controller"

func controllerIndex(obj any) ([]string, error) {
	o := obj.(metav1.Object)
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return []string{"orphan/" + o.GetNamespace()}, nil
}

// ControlledBy returns the objects whose controller has that UID, terminating objects included.
func (o owned[T]) ControlledBy(uid types.UID) []T { return o.ByIndex(byController, string(uid)) }

// Claimable returns the objects that a controller may claim: orphans of the namespace, and objects whose
// controller has that UID. Orphans are read first, so an object that is adopted between the two reads is in
// the result.
func (o owned[T]) Claimable(namespace string, uid types.UID) []T {
	orphans := o.ByIndex(byController, "orphan/"+namespace)
	controlled := o.ControlledBy(uid)
	if len(orphans) == 0 {
		return controlled
	}
	adopted := make(map[types.UID]bool, len(controlled))
	for _, object := range controlled {
		adopted[object.GetUID()] = true
	}
	return append(controlled, slices.DeleteFunc(orphans, func(orphan T) bool { return adopted[orphan.GetUID()] })...)
}
