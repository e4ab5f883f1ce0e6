package caches

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// owned is the cache of a type whose objects may have controllers.
type owned[T metav1.Object] struct{ Store[T] }

// byController is the name of its index: UID of the controlling owner, or orphan/<namespace>.
const byController = "controller"

func controllerIndex(obj any) ([]string, error) {
	o := obj.(metav1.Object)
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return []string{string(owner.UID)}, nil
	}
	return []string{"orphan/" + o.GetNamespace()}, nil
}

// ControlledBy returns the objects whose controlling owner has that UID, those being deleted included.
func (o owned[T]) ControlledBy(uid types.UID) []T { return o.byIndex(byController, string(uid)) }

// Orphans returns the objects of a namespace that nobody controls.
func (o owned[T]) Orphans(namespace string) []T { return o.byIndex(byController, "orphan/"+namespace) }
