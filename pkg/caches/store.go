package caches

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"minikcm/pkg/freshness"
)

// Store is the cache of one type. What it returns is shared and must not be changed.
type Store[T metav1.Object] struct {
	caches   *Caches
	informer cache.SharedIndexInformer
	typ      int // index into caches.types
	handlers *fanOut[T]
	expected *highest
}

// fanOut tells several handlers from one goroutine. client-go would give each two of its own, and a thousand nodes that renew their Leases
// wake them a hundred times a second.
type fanOut[T metav1.Object] []Handler[T]

// Handler is told of changes, one at a time and in order for each object. It must not block: the stream waits for it. A nil
// function is not called.
type Handler[T metav1.Object] struct {
	Add    func(obj T)
	Update func(old, new T)
	// Delete gets the last state that was seen, which is not the object's last state if events were missed.
	Delete func(obj T)
	// Missed is called instead of Delete if no event told of the deletion, and the object was only missing from a list. Nil: Delete is.
	Missed func(obj T)
}

// deleted is whom to tell of an object that is no more.
func (h Handler[T]) deleted(missed bool) func(T) {
	if missed && h.Missed != nil {
		return h.Missed
	}
	return h.Delete
}

// Handle registers a handler. It must be called before Start. Handlers of one type are told one after the other, in the order of their
// registration.
func (s Store[T]) Handle(h Handler[T]) error {
	if s.caches.started {
		return errors.New("register handler: the informers have been started")
	}
	*s.handlers = append(*s.handlers, h)
	return s.register()
}

// register has the informer tell the handlers.
func (s Store[T]) register() error {
	t := &s.caches.types[s.typ]
	if t.handled != nil {
		return nil
	}
	registration, err := s.informer.AddEventHandler(s.handlers.events(s.caches))
	if err != nil {
		return fmt.Errorf("register handler: %w", err)
	}
	t.handled = registration.HasSyncedChecker()
	return nil
}

// observe registers a handler of objects of whatever type.
func (s Store[T]) observe(o Observer) error {
	if err := s.register(); err != nil {
		return err
	}
	t := s.caches.types[s.typ]
	h := o(Cached{t.Resource, reflect.TypeFor[T]().Elem().Name(), t.handled.Done()})
	of := func(tell func(metav1.Object)) func(T) {
		if tell == nil {
			return nil
		}
		return func(obj T) { tell(obj) }
	}
	typed := Handler[T]{Add: of(h.Add), Delete: of(h.Delete), Missed: of(h.Missed)}
	if h.Update != nil {
		typed.Update = func(old, new T) { h.Update(old, new) }
	}
	return s.Handle(typed)
}

func (f *fanOut[T]) events(of *Caches) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			for _, h := range *f {
				if h.Add != nil {
					h.Add(obj.(T))
				}
			}
		},
		UpdateFunc: func(old, new any) {
			for _, h := range *f {
				if h.Update != nil {
					h.Update(old.(T), new.(T))
				}
			}
		},
		DeleteFunc: func(obj any) {
			gone, missed, ok := lastKnown[T](obj)
			if !ok {
				// Not through utilruntime, which may sleep: the watch stream waits for us.
				of.log.Error(nil, "Delete event carries an unexpected type", "type", fmt.Sprintf("%T", obj))
				return
			}
			for _, h := range *f {
				if tell := h.deleted(missed); tell != nil {
					tell(gone)
				}
			}
		},
	}
}

// lastKnown unwraps what a delete event carries: the object or, if the event itself was missed, a tombstone around the last one that was seen.
func lastKnown[T metav1.Object](obj any) (last T, missed, ok bool) {
	if tombstone, wrapped := obj.(cache.DeletedFinalStateUnknown); wrapped {
		obj, missed = tombstone.Obj, true
	}
	last, ok = obj.(T)
	return last, missed, ok
}

// Get returns the object of a name, and whether there is one. Cluster-scoped types have an empty namespace.
func (s Store[T]) Get(name cache.ObjectName) (T, bool) {
	obj, ok, err := s.informer.GetIndexer().GetByKey(name.String())
	if err != nil || !ok {
		var none T
		return none, false
	}
	return obj.(T), true
}

// List returns every object, in no order.
func (s Store[T]) List() []T { return typed[T](s.informer.GetIndexer().List()) }

// Names returns the name of every object, in no order.
func (s Store[T]) Names() []cache.ObjectName {
	objects := s.informer.GetIndexer().List()
	names := make([]cache.ObjectName, len(objects))
	for i, obj := range objects {
		names[i] = cache.MetaObjectToName(obj.(T))
	}
	return names
}

// Resource names the type.
func (s Store[T]) Resource() schema.GroupResource {
	return s.caches.types[s.typ].Resource.GroupResource()
}

// Version is the resource version that the contents have reached: every object is at least as new. It is empty before the first
// list, and comparable only with versions of the same resource.
func (s Store[T]) Version() string { return s.informer.GetIndexer().LastStoreSyncResourceVersion() }

// Expect notes that an object of this type had a version, because this process has just written or read it: a watch that works shows it,
// or a newer one, at once. What is not a version is ignored.
func (s Store[T]) Expect(version string) { s.expected.raise(version) }

// Confirm returns nil once the contents are known to be no older than this call; see [freshness.Watched.Confirm].
func (s Store[T]) Confirm(ctx context.Context, client metadata.Interface, clk clock.Clock) error {
	return s.caches.types[s.typ].Confirm(ctx, client, clk)
}

func (s Store[T]) byIndex(index, value string) []T {
	objects, err := s.informer.GetIndexer().ByIndex(index, value)
	if err != nil { // only an index that was never added
		return nil
	}
	return typed[T](objects)
}

func (s Store[T]) objects() []freshness.ObjectVersion {
	objects := s.informer.GetIndexer().List()
	versions := make([]freshness.ObjectVersion, len(objects))
	for i, obj := range objects {
		o := obj.(T)
		versions[i] = freshness.ObjectVersion{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
	}
	return versions
}

func typed[T any](objects []any) []T {
	out := make([]T, len(objects))
	for i, obj := range objects {
		out[i] = obj.(T)
	}
	return out
}
