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
func (w *Owners[O, T]) OwnerOf(object T) (owner O, ok bool) {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != w.Kind {
		return owner, false
	}
	owner, ok = w.Get(cache.NewObjectName(object.GetNamespace(), ref.Name))
	return owner, ok && owner.GetUID() == ref.UID
}

// OnAdd enqueues the owner of an object, or all owners that could adopt it.
func (w *Owners[O, T]) OnAdd(object T) {
	switch {
	case !w.InTerm.Load():
	case metav1.GetControllerOfNoCopy(object) != nil:
		w.enqueueOwner(object)
	case object.GetDeletionTimestamp() == nil:
		w.enqueueAdopters(object)
	}
}

// OnUpdate enqueues the owners that an object had, has or could get.
func (w *Owners[O, T]) OnUpdate(old, object T) {
	if !w.InTerm.Load() || old.GetResourceVersion() == object.GetResourceVersion() { // resync
		return
	}
	oldRef, ref := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(object)
	if oldRef != nil && (ref == nil || ref.UID != oldRef.UID) {
		w.enqueueOwner(old)
	}
	switch {
	case ref != nil:
		w.enqueueOwner(object)
	case object.GetDeletionTimestamp() == nil && (oldRef != nil || !maps.Equal(old.GetLabels(), object.GetLabels())):
		w.enqueueAdopters(object)
	}
}

// OnDelete enqueues the owner of an object.
func (w *Owners[O, T]) OnDelete(object T) {
	if w.InTerm.Load() {
		w.enqueueOwner(object)
	}
}

// NamespaceHandler enqueues the owners in a new namespace. An earlier namespace with the same name may have
// blocked them.
func (w *Owners[O, T]) NamespaceHandler() caches.Handler[*corev1.Namespace] {
	added := func(ns *corev1.Namespace) {
		if !w.InTerm.Load() {
			return
		}
		for _, owner := range w.In(ns.Name) {
			w.Enqueue(owner)
		}
	}
	return caches.Handler[*corev1.Namespace]{Add: added, Update: func(old, ns *corev1.Namespace) {
		if old.UID != ns.UID {
			added(ns)
		}
	}}
}

func (w *Owners[O, T]) enqueueOwner(object T) {
	if owner, ok := w.OwnerOf(object); ok {
		w.Enqueue(owner)
	}
}

func (w *Owners[O, T]) enqueueAdopters(object T) {
	adopters := slices.DeleteFunc(w.In(object.GetNamespace()), func(owner O) bool { return !selectorMatches(w.Selector(owner), object.GetLabels()) })
	for _, owner := range adopters {
		w.Enqueue(owner)
	}
	if len(adopters) > 1 && w.Several != nil {
		w.Several(object, adopters)
	}
}

// selectorMatches reports whether a selector matches labels. An empty or invalid selector matches nothing.
func selectorMatches(s *metav1.LabelSelector, l map[string]string) bool {
	if len(l) == 0 {
		return false
	}
	selector, err := selectors.ParseSelector(s)
	return err == nil && selector.Matches(labels.Set(l))
}
