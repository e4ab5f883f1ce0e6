package caches

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/freshness"
)

// Options configures the watch of a type. The zero value is for a Kubernetes type, in all namespaces,
// without trimming.
type Options struct {
	// Namespace limits the watch to one namespace. It is empty for all namespaces and for cluster-scoped
	// types. Informer has to respect Namespace.
	Namespace string
	// Trim drops unused fields before an object enters the cache, and may return another type, that of the
	// store. It may modify its argument, and must be idempotent: client-go passes the objects of a
	// streaming list twice. Optional.
	Trim cache.TransformFunc
	// Indexers are maintained beside the index by namespace. An existing index of the same name stays,
	// because functions cannot be compared.
	Indexers cache.Indexers
	// Scheme holds a type that is not from Kubernetes, and its list. Optional.
	Scheme *runtime.Scheme
	// Informer returns the informer of [Caches.Factory], such as c.Factory().Core().V1().Pods().Informer. By
	// default an informer is made for T. A type that Trim converts needs Informer.
	Informer func() cache.SharedIndexInformer
}

// Watch starts to watch a type when Start is called, and returns its store. Another call for the type
// returns the same store, adds missing indexers, and sets a missing trim. It is an error to request more
// than the watched namespace.
func Watch[T metav1.Object](c *Caches, gvr schema.GroupVersionResource, o Options) (Store[T], error) {
	if known, ok := c.stores[gvr]; ok {
		store, ok := known.(Store[T])
		if !ok {
			return Store[T]{}, fmt.Errorf("watch %s: the store is a %T", gvr.Resource, known)
		}
		return store, store.addOptions(o)
	}
	if c.started {
		return Store[T]{}, fmt.Errorf("watch %s: the informers have been started", gvr.Resource)
	}
	informer, err := informerFor[T](c, gvr, o)
	if err != nil {
		return Store[T]{}, fmt.Errorf("watch %s: %w", gvr.Resource, err)
	}
	s := Store[T]{caches: c, informer: informer, typ: len(c.types), handlers: &fanOut[T]{}, expected: &highest{}}
	registration, err := informer.AddEventHandler(s.handlers.eventHandler())
	if err != nil {
		return Store[T]{}, fmt.Errorf("watch %s: %w", gvr.Resource, err)
	}
	c.types = append(c.types, watchedType{observe: s.addObserver, synced: registration.HasSyncedChecker(), WatchedCache: freshness.WatchedCache{
		Resource: gvr, Namespace: o.Namespace, Version: s.Version, Expected: s.expected.get, Objects: s.objectVersions,
	}})
	c.stores[gvr] = s
	return s, s.addOptions(o)
}

func (s Store[T]) addOptions(o Options) error {
	t := &s.caches.types[s.typ]
	if t.Namespace != metav1.NamespaceAll && t.Namespace != o.Namespace {
		return fmt.Errorf("watch %s: only namespace %s is watched", t.Resource.Resource, t.Namespace)
	}
	if o.Trim != nil && !t.trimmed {
		if err := s.informer.SetTransform(o.Trim); err != nil {
			return fmt.Errorf("watch %s: %w", t.Resource.Resource, err)
		}
		t.trimmed = true
	}
	known := s.informer.GetIndexer().GetIndexers()
	missing := maps.Clone(o.Indexers)
	maps.DeleteFunc(missing, func(name string, _ cache.IndexFunc) bool { return known[name] != nil })
	if len(missing) == 0 {
		return nil
	}
	if err := s.informer.AddIndexers(missing); err != nil {
		return fmt.Errorf("watch %s: %w", t.Resource.Resource, err)
	}
	return nil
}

func informerFor[T metav1.Object](c *Caches, gvr schema.GroupVersionResource, o Options) (cache.SharedIndexInformer, error) {
	if o.Informer != nil {
		return o.Informer(), nil
	}
	object, ok := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%v is no API type", reflect.TypeFor[T]())
	}
	content, known := runtime.ContentTypeJSON, o.Scheme
	if known == nil {
		content, known = "", scheme.Scheme
	}
	kinds, _, err := known.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(kinds, func(kind schema.GroupVersionKind) bool { return kind.GroupVersion() == gvr.GroupVersion() }) {
		return nil, fmt.Errorf("%v is not of %v", reflect.TypeFor[T](), gvr.GroupVersion())
	}
	if c.cfg.REST == nil {
		return nil, errors.New("Config.REST is missing")
	}
	client, err := c.cfg.REST(&rest.ContentConfig{
		GroupVersion: new(gvr.GroupVersion()), ContentType: content,
		NegotiatedSerializer: serializer.NewCodecFactory(known).WithoutConversion(),
	})
	if err != nil {
		return nil, err
	}
	source := cache.NewListWatchFromClient(client, gvr.Resource, o.Namespace, fields.Everything())
	return c.factory.InformerFor(object, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformerWithOptions(source, object, cache.SharedIndexInformerOptions{
			ResyncPeriod: resync, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			ObjectDescription: gvr.String(), Identifier: c.factory.InformerName().WithResource(gvr),
		})
	}), nil
}
