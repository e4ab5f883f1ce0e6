// Package enqueue maps an event on an object to the keys of its owners.
package enqueue

import (
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/selectors"
)

// Owners maps events on objects of type T to owners of type O, such as pods to ReplicaSets. The methods are event
// handlers, for any goroutine.
type Owners[O, T metav1.Object] struct {
	Kind     string
	InTerm   *atomic.Bool // events outside of a term are ignored
	Get      func(cache.ObjectName) (O, bool)
	In       func(namespace string) []O
	Selector func(O) *metav1.LabelSelector
	Enqueue  func(O)
	Several  func(object T, owners []O) // called if several owners select an orphan; may be nil
}

// OwnerOf returns the owner that controls an object.
func (o *Owners[O, T]) OwnerOf(object T) (owner O, ok bool) {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != o.Kind {
		return owner, false
	}
	owner, ok = o.Get(cache.NewObjectName(object.GetNamespace(), ref.Name))
	return owner, ok && owner.GetUID() == ref.UID
}

// OnAdd enqueues the owner of an object, or all owners that could adopt it.
func (o *Owners[O, T]) OnAdd(object T) {
	switch {
	case !o.InTerm.Load():
	case metav1.GetControllerOfNoCopy(object) != nil:
		o.enqueueOwner(object)
	case object.GetDeletionTimestamp() == nil:
		o.enqueueAdopters(object)
	}
}

// OnUpdate enqueues the owners that an object had, has or could get.
func (o *Owners[O, T]) OnUpdate(old, object T) {
	if !o.InTerm.Load() || old.GetResourceVersion() == object.GetResourceVersion() { // resync
		return
	}
	oldRef, ref := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(object)
	if oldRef != nil && (ref == nil || ref.UID != oldRef.UID) {
		o.enqueueOwner(old)
	}
	switch {
	case ref != nil:
		o.enqueueOwner(object)
	case object.GetDeletionTimestamp() == nil && (oldRef != nil || !maps.Equal(old.GetLabels(), object.GetLabels())):
		o.enqueueAdopters(object)
	}
}

// OnDelete enqueues the owner of an object.
func (o *Owners[O, T]) OnDelete(object T) {
	if o.InTerm.Load() {
		o.enqueueOwner(object)
	}
}

// NamespaceHandler enqueues the owners in a new namespace. An earlier namespace with the same name may have
// blocked them.
func (o *Owners[O, T]) NamespaceHandler() caches.Handler[*corev1.Namespace] {
	added := func(ns *corev1.Namespace) {
		if !o.InTerm.Load() {
			return
		}
		for _, owner := range o.In(ns.Name) {
			o.Enqueue(owner)
		}
	}
	return caches.Handler[*corev1.Namespace]{Add: added, Update: func(old, ns *corev1.Namespace) {
		if old.UID != ns.UID {
			added(ns)
		}
	}}
}

func (o *Owners[O, T]) enqueueOwner(object T) {
	if owner, ok := o.OwnerOf(object); ok {
		o.Enqueue(owner)
	}
}

func (o *Owners[O, T]) enqueueAdopters(object T) {
	adopters := slices.DeleteFunc(o.In(object.GetNamespace()), func(owner O) bool {
		selector, err := selectors.ParseSelector(o.Selector(owner))
		return err != nil || !selector.Matches(labels.Set(object.GetLabels()))
	})
	for _, owner := range adopters {
		o.Enqueue(owner)
	}
	if len(adopters) > 1 && o.Several != nil {
		o.Several(object, adopters)
	}
}
