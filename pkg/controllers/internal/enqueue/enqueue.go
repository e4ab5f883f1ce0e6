// Package wake finds whose keys to queue when something happens to an object that has, or could have, a controller.
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

// Owners are the objects of one kind that control others, such as ReplicaSets, and are woken by what happens to those. All fields are needed. The methods are
// event handlers, for any goroutine.
type Owners[O, T metav1.Object] struct {
	Kind     string
	InTerm   *atomic.Bool // nobody is looked up otherwise
	Get      func(cache.ObjectName) (O, bool)
	In       func(namespace string) []O
	Selector func(O) *metav1.LabelSelector
	Wake     func(O)
	Several  func(object T, owners []O) // told if more than one could adopt an object
}

// Of returns the owner that controls an object; ok is false if there is none.
func (w *Owners[O, T]) Of(object T) (owner O, ok bool) {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != w.Kind {
		return owner, false
	}
	owner, ok = w.Get(cache.NewObjectName(object.GetNamespace(), ref.Name))
	return owner, ok && owner.GetUID() == ref.UID
}

// Added wakes the owner of an object, or all who could adopt it.
func (w *Owners[O, T]) Added(object T) {
	switch {
	case !w.InTerm.Load():
	case metav1.GetControllerOfNoCopy(object) != nil:
		w.wakeOwner(object)
	case object.GetDeletionTimestamp() == nil:
		w.wakeAdopters(object)
	}
}

// Updated wakes whom the object concerns now and whom it concerned before.
func (w *Owners[O, T]) Updated(old, object T) {
	if !w.InTerm.Load() || old.GetResourceVersion() == object.GetResourceVersion() { // a resync
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

// Deleted wakes the owner of an object.
func (w *Owners[O, T]) Deleted(object T) {
	if w.InTerm.Load() {
		w.wakeOwner(object)
	}
}

// Namespaces wakes owners that may have been held back by an older namespace of the name of a new one.
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

// selects reports whether a selector selects objects with these labels. One that is empty or invalid selects none.
func selects(s *metav1.LabelSelector, l map[string]string) bool {
	if len(l) == 0 {
		return false
	}
	selector, err := selectors.Of(s)
	return err == nil && selector.Matches(labels.Set(l))
}
