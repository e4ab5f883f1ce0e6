package caches

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/freshness"
)

// Config configures the caches.
type Config struct {
	// Name is the name label of the informer metrics. Without a name, there are no metrics. Of several sets of
	// caches with one name, only the first has metrics.
	Name string
	// FreeMemory returns memory to the operating system after the first lists of the caches and after long
	// lists of feeds. It stops the whole process for a moment.
	FreeMemory bool
	// Resync is the resync period of handlers; zero means never.
	Resync time.Duration
	// LeaseNamespaces lists the namespaces whose Leases keep holder and times. If there is one namespace, only
	// that namespace is watched.
	LeaseNamespaces []string
	// LeaseOwners also keeps owner references, finalizers and deletion timestamp of Leases, and watches all
	// namespaces.
	LeaseOwners bool
	// Fields are the optional fields that cached objects keep.
	Fields Fields
	// LeaseClient is the client for Leases, if Leases need a client of their own.
	LeaseClient kubernetes.Interface
	// REST returns the client of a type without an informer in client-go's factory. An empty content type
	// means the default. Optional.
	REST func(*rest.ContentConfig) (rest.Interface, error)
	// Direct returns the client configuration of feeds and their discovery, with new connections for each call.
	// It should be neither rate limited nor fenced. Not needed without feeds.
	Direct func() (*rest.Config, *http.Client, error)
}

// Fields is a set of optional fields. Cached objects lack a field that no controller requests.
type Fields uint8

const (
	PodEndpoint Fields = 1 << iota // [Pod.Endpoint]
	NodeCPU                        // the allocatable CPU of nodes
)

// Caches is built in one goroutine in three steps: New, requests for types and handlers, Start. After that
// all methods may be called from any goroutine.
type Caches struct {
	cfg     Config
	factory informers.SharedInformerFactory

	pods        *Pods
	feeds       *Feeds
	deployments bool

	stores  map[schema.GroupVersionResource]any // Store[T]
	types   []watchedType
	started bool

	observers []Observer
	alongside []func(context.Context)
	running   sync.WaitGroup
}

type watchedType struct {
	freshness.WatchedCache
	observe func(Observer)
	trimmed bool
	synced  cache.DoneChecker // done when the cache and all handlers have the first list
}

// New returns caches without types. The client should be neither rate limited nor fenced.
func New(client kubernetes.Interface, cfg Config) *Caches {
	name, _ := cache.NewInformerName(cfg.Name) // nil, without metrics, if the name is empty or taken
	c := &Caches{
		cfg:     cfg,
		stores:  map[schema.GroupVersionResource]any{},
		factory: informers.NewSharedInformerFactoryWithOptions(client, cfg.Resync, informers.WithInformerName(name)),
	}
	c.feeds = newFeeds(c)
	return c
}

// Request stores the result of a request for a cache, such as [Caches.Pods], and returns the error.
func Request[T any](into *T, request func() (T, error)) (err error) {
	*into, err = request()
	return err
}

// Factory returns the informer factory, for [Options.Informer].
func (c *Caches) Factory() informers.SharedInformerFactory { return c.factory }

// Types returns the watched types in the order of their requests.
func (c *Caches) Types() []freshness.WatchedCache {
	types := make([]freshness.WatchedCache, len(c.types))
	for i, t := range c.types {
		types[i] = t.WatchedCache
	}
	return types
}

// RunAlongside registers a function that runs from Start until the context ends. Call it before Start
// or from an Observer.
func (c *Caches) RunAlongside(run func(context.Context)) { c.alongside = append(c.alongside, run) }

// CachedType is a type that has a cache of all namespaces.
type CachedType struct {
	Resource schema.GroupVersionResource
	Kind     string          // name of the Go type
	Synced   <-chan struct{} // closed when handlers have received the first list
}

// Observer returns the handler for the objects of a cached type.
type Observer func(CachedType) Handler[metav1.Object]

// Observe registers an observer of all caches of all namespaces. Call it before Start, which calls the
// observer.
func (c *Caches) Observe(o Observer) { c.observers = append(c.observers, o) }

// Feeds returns the feeds of types that have no cache.
func (c *Caches) Feeds() *Feeds { return c.feeds }

// Start starts all informers and the functions of RunAlongside. They run until ctx ends; Shutdown waits for
// them.
func (c *Caches) Start(ctx context.Context) {
	for _, t := range c.types { // after all other handlers
		for _, o := range c.observers {
			if t.Namespace == metav1.NamespaceAll {
				t.observe(o)
			}
		}
	}
	c.started = true
	c.factory.StartWithContext(ctx)
	for _, run := range c.alongside {
		c.running.Go(func() { run(ctx) })
	}
}

// Shutdown waits until all informers and functions have stopped. The context of Start must have ended.
func (c *Caches) Shutdown() {
	c.factory.Shutdown()
	c.running.Wait()
}

// WaitForSync blocks until every cache and every handler has the first list, or ctx has ended.
func (c *Caches) WaitForSync(ctx context.Context) error {
	for _, t := range c.types {
		if !cache.WaitFor(ctx, "", t.synced) { // without a name nothing is logged
			return fmt.Errorf("wait for the cache of %s: %w", t.Resource.Resource, context.Cause(ctx))
		}
		klog.FromContext(ctx).V(2).Info("Cache synced", "resource", t.Resource.Resource, "resourceVersion", t.Version())
	}
	if c.cfg.FreeMemory {
		debug.FreeOSMemory()
	}
	return nil
}

// Unsynced returns the types whose first list has not reached the cache or a handler.
func (c *Caches) Unsynced() []string {
	var names []string
	for _, t := range c.types {
		if !cache.IsDone(t.synced) {
			names = append(names, t.Resource.Resource)
		}
	}
	return names
}
