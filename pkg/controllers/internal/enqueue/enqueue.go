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

// Owners maps events on objects of type T to owners of type O, such as pods to ReplicaSets. All fields are
// required. The methods are event handlers, for any goroutine.
type Owners[O, T metav1.Object] struct {
	Kind     string
	InTerm   *atomic.Bool // events outside of a term are ignored
	Get      func(cache.ObjectName) (O, bool)
	In       func(namespace string) []O
	Selector func(O) *metav1.LabelSelector
	Wake     func(O)
	Several  func(object T, owners []O) // called if several owners select an orphan
}

// Of returns the owner that controls an object.
func (w *Owners[O, T]) Of(object T) (owner O, ok bool) {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != w.Kind {
		return owner, false
	}
	owner, ok = w.Get(cache.NewObjectName(object.GetNamespace(), ref.Name))
	return owner, ok && owner.GetUID() == ref.UID
}

// Added enqueues the owner of an object, or all owners that could adopt it.
func (w *Owners[O, T]) Added(object T) {
	switch {
	case !w.InTerm.Load():
	case metav1.GetControllerOfNoCopy(object) != nil:
		w.wakeOwner(object)
	case object.GetDeletionTimestamp() == nil:
		w.wakeAdopters(object)
	}
}

// Updated enqueues the owners that an object had, has or could get.
func (w *Owners[O, T]) Updated(old, object T) {
	if !w.InTerm.Load() || old.GetResourceVersion() == object.GetResourceVersion() { // resync
		return
	}
	oldRef, ref := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(object)
	if oldRef != nil && (ref == nil || ref.UID != oldRef.UID) {
		w.wakeOwner(old)
	}
	switch {
	case ref != nil:
		w.wakeOwner(object)
	case object.GetDeletionTimestamp() == nil && (oldRef != nil || !maps.Equal(old.GetLabels(), object.GetLabels())):
		w.wakeAdopters(object)
	}
}

// Deleted enqueues the owner of an object.
func (w *Owners[O, T]) Deleted(object T) {
	if w.InTerm.Load() {
		w.wakeOwner(object)
	}
}

// Namespaces enqueues the owners in a new namespace. An earlier namespace with the same name may have
// blocked them.
func (w *Owners[O, T]) Namespaces() caches.Handler[*corev1.Namespace] {
	added := func(ns *corev1.Namespace) {
		if !w.InTerm.Load() {
			return
		}
		for _, owner := range w.In(ns.Name) {
			w.Wake(owner)
		}
	}
	return caches.Handler[*corev1.Namespace]{Add: added, Update: func(old, ns *corev1.Namespace) {
		if old.UID != ns.UID {
			added(ns)
		}
	}}
}

func (w *Owners[O, T]) wakeOwner(object T) {
	if owner, ok := w.Of(object); ok {
		w.Wake(owner)
	}
}

func (w *Owners[O, T]) wakeAdopters(object T) {
	adopters := slices.DeleteFunc(w.In(object.GetNamespace()), func(owner O) bool { return !selects(w.Selector(owner), object.GetLabels()) })
	for _, owner := range adopters {
		w.Wake(owner)
	}
	if len(adopters) > 1 {
		w.Several(object, adopters)
	}
}

// selects reports whether a selector matches labels. An empty or invalid selector matches nothing.
func selects(s *metav1.LabelSelector, l map[string]string) bool {
	if len(l) == 0 {
		return false
	}
	selector, err := selectors.Of(s)
	return err == nil && selector.Matches(labels.Set(l))
}
