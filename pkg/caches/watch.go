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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/freshness"
)

// Options say how a type is watched. The zero value is for a type of Kubernetes' own, in all namespaces, kept whole.
type Options struct {
	// Namespace is the only one that is watched; empty for all and for cluster-scoped types. An Informer has to keep to it by itself.
	Namespace string
	// Trim drops what nobody reads from an object on its way into the cache, and may return another type, that of the store. It may modify its argument, and
	// must be idempotent: client-go passes the objects of a streaming list through it twice. Nil keeps everything.
	Trim cache.TransformFunc
	// Indexers are kept up to date besides the one by namespace. If a name is taken, the index that has it stays: functions cannot be compared.
	Indexers cache.Indexers
	// Scheme knows a type that is not Kubernetes' own, and its list; nil for those that are.
	Scheme *runtime.Scheme
	// Informer takes the informer from the factory, such as factory.Core().V1().Pods().Informer(); nil: it is made for T. A type that Trim
	// turns into another needs it.
	Informer func(informers.SharedInformerFactory) cache.SharedIndexInformer
}

// Watch puts a type under watch and returns its store. It must come before Start, like everything that shapes an informer. Whoever asks for
// a type again gets the same store, with the indexers that it lacked, and the trim if it had none. If only one namespace of a type is watched, it is an
// error to ask for another one, or for all.
func Watch[T metav1.Object](c *Caches, gvr schema.GroupVersionResource, o Options) (Store[T], error) {
	if known, ok := c.stores[gvr]; ok {
		store, ok := known.(Store[T])
		if !ok {
			return Store[T]{}, fmt.Errorf("watch %s: it is in a %T already", gvr.Resource, known)
		}
		return store, store.extend(o)
	}
	if c.started {
		return Store[T]{}, fmt.Errorf("watch %s: the informers have been started", gvr.Resource)
	}
	informer, err := informerFor[T](c, gvr, o)
	if err != nil {
		return Store[T]{}, fmt.Errorf("watch %s: %w", gvr.Resource, err)
	}
	s := Store[T]{caches: c, informer: informer, typ: len(c.types), handlers: &fanOut[T]{}, expected: &highest{}}
	c.types = append(c.types, watchedType{observe: s.observe, synced: informer.HasSyncedChecker(), Watched: freshness.Watched{
		Resource: gvr, Namespace: o.Namespace, Version: s.Version, Expected: s.expected.get, Objects: s.objects,
	}})
	c.stores[gvr] = s
	return s, s.extend(o)
}

// extend adds what options ask for and the informer does not have yet.
func (s Store[T]) extend(o Options) error {
	t := &s.caches.types[s.typ]
	if t.Namespace != metav1.NamespaceAll && t.Namespace != o.Namespace {
		return fmt.Errorf("watch %s: only those of namespace %s are watched", t.Resource.Resource, t.Namespace)
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

// informerFor makes the informer of a type, in the factory.
func informerFor[T metav1.Object](c *Caches, gvr schema.GroupVersionResource, o Options) (cache.SharedIndexInformer, error) {
	if o.Informer != nil {
		return o.Informer(c.factory), nil
	}
	object, ok := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(runtime.Object) // T is a pointer
	if !ok {
		return nil, fmt.Errorf("%v is not what the API server has", reflect.TypeFor[T]())
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
		return nil, errors.New("its informer cannot be made without a client")
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
			ObjectDescription: gvr.String(), Identifier: c.name.WithResource(gvr),
		})
	}), nil
}
