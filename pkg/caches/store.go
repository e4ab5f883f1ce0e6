package caches

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/rv"
	"minikcm/pkg/freshness"
)

// Store is the cache of one type. Returned objects are shared and must not be changed.
type Store[T metav1.Object] struct {
	caches   *Caches
	informer cache.SharedIndexInformer
	typ      int
	handlers *fanOut[T]
	expected *highest
}

// fanOut calls several handlers from one goroutine. client-go would give each handler two goroutines, and
// the Leases of a thousand nodes would wake them a hundred times per second.
type fanOut[T metav1.Object] []Handler[T]

// Handler receives changes, one at a time and in order for each object. A handler must not block, because the
// watch waits. All functions are optional.
type Handler[T metav1.Object] struct {
	Add    func(obj T)
	Update func(old, new T)
	// Delete gets the last known state, which is not the final state if events were missed.
	Delete func(obj T)
	// Missed is called instead of Delete if a list showed the deletion and no event did. It defaults to
	// Delete.
	Missed func(obj T)
}

// Handle registers a handler. Call it before Start. Handlers of one type are called in the order of
// registration.
func (s Store[T]) Handle(h Handler[T]) error {
	if s.caches.started {
		return fmt.Errorf("register handler for %s: the informers have been started", s.Resource())
	}
	*s.handlers = append(*s.handlers, h)
	return nil
}

// addObserver registers a handler for objects of any type.
func (s Store[T]) addObserver(o Observer) {
	t := s.caches.types[s.typ]
	h := o(CachedType{t.Resource, reflect.TypeFor[T]().Elem().Name(), t.synced.Done()})
	typedHandler := func(handle func(metav1.Object)) func(T) {
		if handle == nil {
			return nil
		}
		return func(obj T) { handle(obj) }
	}
	typed := Handler[T]{Add: typedHandler(h.Add), Delete: typedHandler(h.Delete), Missed: typedHandler(h.Missed)}
	if h.Update != nil {
		typed.Update = func(old, new T) { h.Update(old, new) }
	}
	*s.handlers = append(*s.handlers, typed)
}

func (f *fanOut[T]) eventHandler() cache.ResourceEventHandler {
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
			tombstone, missed := obj.(cache.DeletedFinalStateUnknown) // if no event showed the deletion
			if missed {
				obj = tombstone.Obj
			}
			gone, ok := obj.(T)
			if !ok {
				return // never, with a store of T
			}
			for _, h := range *f {
				switch {
				case missed && h.Missed != nil:
					h.Missed(gone)
				case h.Delete != nil:
					h.Delete(gone)
				}
			}
		},
	}
}

// Get returns the object with a name. Cluster-scoped types have an empty namespace.
func (s Store[T]) Get(name cache.ObjectName) (T, bool) {
	found, _, _ := s.informer.GetIndexer().GetByKey(name.String()) // nil if there is none
	obj, ok := found.(T)
	return obj, ok
}

// List returns all objects, in any order.
func (s Store[T]) List() []T { return convertObjects[T](s.informer.GetIndexer().List()) }

// InNamespace returns the objects of a namespace.
func (s Store[T]) InNamespace(namespace string) []T {
	return s.ByIndex(cache.NamespaceIndex, namespace)
}

// Names returns the names of all objects, in any order.
func (s Store[T]) Names() []cache.ObjectName {
	objects := s.informer.GetIndexer().List()
	names := make([]cache.ObjectName, len(objects))
	for i, obj := range objects {
		names[i] = cache.MetaObjectToName(obj.(T))
	}
	return names
}

// Resource returns the type.
func (s Store[T]) Resource() schema.GroupResource {
	return s.caches.types[s.typ].Resource.GroupResource()
}

// Version returns the resourceVersion that the cache has reached: every object is at least as new. It is
// empty before the first list, and comparable only within the type.
func (s Store[T]) Version() string { return s.informer.GetIndexer().LastStoreSyncResourceVersion() }

// Expect records that this process has written or read an object at a version. A working watch shows the
// version soon. Strings that are no versions are ignored.
func (s Store[T]) Expect(version string) { s.expected.raiseTo(version) }

// highest holds the highest of some resource versions.
type highest struct {
	lock    sync.Mutex
	version string
}

// raiseTo ignores strings that are no versions.
func (h *highest) raiseTo(version string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if rv.AtLeast(version, cmp.Or(h.version, version)) { // the first version has to be comparable with itself
		h.version = version
	}
}

// get returns the highest version, or an empty string.
func (h *highest) get() string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.version
}

// Confirm returns nil once the cache is known to be no older than the call; see
// [freshness.WatchedCache.Confirm].
func (s Store[T]) Confirm(ctx context.Context, client metadata.Interface) error {
	return s.caches.types[s.typ].Confirm(ctx, client)
}

// VersionRead reads the current resourceVersion of a type from the API server.
type VersionRead func(context.Context) (schema.GroupResource, string, error)

// LatestVersion returns a VersionRead that sends a limit=1 list. A cache with at least that [Store.Version] shows
// everything written before the read.
func LatestVersion[L metav1.ListInterface](of interface{ Resource() schema.GroupResource },
	list func(context.Context, metav1.ListOptions) (L, error)) VersionRead {
	return func(ctx context.Context) (schema.GroupResource, string, error) {
		first, err := list(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return schema.GroupResource{}, "", fmt.Errorf("read the version of %v: %w", of.Resource(), err)
		}
		return of.Resource(), first.GetResourceVersion(), nil
	}
}

// ByIndex returns the objects with a value in an index of [Options.Indexers].
func (s Store[T]) ByIndex(index, value string) []T {
	objects, _ := s.informer.GetIndexer().ByIndex(index, value) // the error of an index that does not exist
	return convertObjects[T](objects)
}

func (s Store[T]) objectVersions() freshness.ObjectVersions {
	objects := s.informer.GetIndexer().List()
	versions := make(freshness.ObjectVersions, len(objects))
	for _, obj := range objects {
		o := obj.(T)
		name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
		versions[name] = freshness.ObjectVersion{UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
	}
	return versions
}

func convertObjects[T any](objects []any) []T {
	out := make([]T, len(objects))
	for i, obj := range objects {
		out[i] = obj.(T)
	}
	return out
}
