package caches

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/freshness"
)

// Config of the caches.
type Config struct {
	// Name is the name label of the informer metrics; empty: there are none. A second set of caches of one name in the same process has none
	// either.
	Name string
	// FreeMemory gives the memory that only lists needed back to the operating system, when the first ones of the caches are all there and after long ones of
	// feeds. It stops the whole process for a moment, so it is for a process that has nothing else to do.
	FreeMemory bool
	// Resync is how often handlers are told of every object again; zero never.
	Resync time.Duration
	// LeaseNamespaces are the namespaces whose Leases are kept with their holder and times. If it is only one, no other is watched.
	LeaseNamespaces []string
	// LeaseOwners also keeps the owner references, finalizers and deletion timestamp of Leases, and watches those of all namespaces.
	LeaseOwners bool
	// LeaseClient is what Leases are watched with, if not with the client of all other types.
	LeaseClient kubernetes.Interface
	// REST makes the client of a type that comes without an informer; nil: there can be none. An empty content type is that of all others.
	REST func(*rest.ContentConfig) (rest.Interface, error)
	// Direct returns a way to the API server for what has no informer, on connections of its own each time; nil: there is none. It should be
	// neither rate limited nor fenced.
	Direct func() (*rest.Config, *http.Client, error)
	// Transport made the clients. Nil for ordinary clients.
	Transport *freshness.Transport
	// Clock is that of feeds; nil: the real one.
	Clock clock.WithTicker
}

// Caches are built in three steps, in one goroutine: New, then whoever wants a type asks for it and registers handlers, then
// Start. After that everything may be called from any goroutine.
type Caches struct {
	cfg     Config
	name    *cache.InformerName
	factory informers.SharedInformerFactory

	pods        *Pods
	feeds       *Feeds
	deployments bool // are watched

	stores  map[schema.GroupVersionResource]any // Store[T]
	types   []watchedType
	started bool
	log     klog.Logger // since Start

	observers []Observer
	alongside []func(context.Context)
	running   sync.WaitGroup // those alongside
}

// watchedType is one type that is watched.
type watchedType struct {
	freshness.Watched
	observe func(Observer) error
	trimmed bool // its informer has a trim
	synced  cache.DoneChecker
	handled cache.DoneChecker // nil: there is no handler
}

// filled is what there is to wait for.
func (t watchedType) filled() []cache.DoneChecker {
	if t.handled == nil {
		return []cache.DoneChecker{t.synced}
	}
	return []cache.DoneChecker{t.synced, t.handled}
}

// New returns caches that watch nothing yet. The client should be neither rate limited nor fenced.
func New(client kubernetes.Interface, cfg Config) *Caches {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	options := []informers.SharedInformerOption{}
	var name *cache.InformerName // nil has no metrics
	if cfg.Name != "" {
		if unique, err := cache.NewInformerName(cfg.Name); err == nil {
			name, options = unique, append(options, informers.WithInformerName(unique))
		}
	}
	c := &Caches{
		cfg:     cfg,
		name:    name,
		stores:  map[schema.GroupVersionResource]any{},
		factory: informers.NewSharedInformerFactoryWithOptions(client, cfg.Resync, options...),
	}
	c.feeds = newFeeds(c)
	return c
}

// Types lists the watched types in the order they were first asked for.
func (c *Caches) Types() []freshness.Watched {
	types := make([]freshness.Watched, len(c.types))
	for i, t := range c.types {
		types[i] = t.Watched
	}
	return types
}

// Alongside has a function run from Start on, until its context ends, on a standby as well if that keeps its caches warm. It must come before Start.
func (c *Caches) Alongside(run func(context.Context)) { c.alongside = append(c.alongside, run) }

// Cached is a type that has a cache of all namespaces.
type Cached struct {
	Resource schema.GroupVersionResource
	Kind     string          // as the Go type is called
	Synced   <-chan struct{} // closed when handlers have been told of the first list
}

// Observer returns the handler that is told of every object of a type that somebody has asked for.
type Observer func(Cached) Handler[metav1.Object]

// Observe has an observer told of the objects of all caches that are of all namespaces. It must come before Start, and is called by it.
func (c *Caches) Observe(o Observer) { c.observers = append(c.observers, o) }

// attach registers the handlers of the observers, after those of everybody else.
func (c *Caches) attach() error {
	var failed []error
	for _, t := range c.types {
		for _, o := range c.observers {
			if t.Namespace == metav1.NamespaceAll {
				failed = append(failed, t.observe(o))
			}
		}
	}
	return errors.Join(failed...)
}

// Feeds brings in the metadata of types that have no cache.
func (c *Caches) Feeds() *Feeds { return c.feeds }

// Start starts every informer that somebody asked for, and what is to run alongside. They run until ctx ends; Shutdown waits for them.
func (c *Caches) Start(ctx context.Context) {
	if err := c.attach(); err != nil { // only an informer that has ended already takes no handler
		klog.FromContext(ctx).Error(err, "Nobody observes a cache")
	}
	c.started, c.log = true, klog.FromContext(ctx)
	c.factory.StartWithContext(ctx)
	for _, run := range c.alongside {
		c.running.Go(func() { run(ctx) })
	}
}

// Shutdown waits until every informer, and whatever runs alongside, has stopped. The context of Start must have ended.
func (c *Caches) Shutdown() {
	c.factory.Shutdown()
	c.running.Wait()
	c.name.Release()
}

// WaitForSync blocks until every cache holds its first list and every handler has seen it, or ctx has ended.
func (c *Caches) WaitForSync(ctx context.Context) error {
	for _, t := range c.types {
		if !cache.WaitFor(ctx, "", t.filled()...) { // unnamed it logs nothing
			return fmt.Errorf("wait for the cache of %s: %w", t.Resource.Resource, context.Cause(ctx))
		}
		klog.FromContext(ctx).V(2).Info("Cache synced", "resource", t.Resource.Resource, "resourceVersion", t.Version())
	}
	if c.cfg.FreeMemory {
		debug.FreeOSMemory()
	}
	return nil
}

// Unsynced names the watched resources whose first list, or a handler's view of it, is still missing.
func (c *Caches) Unsynced() []string {
	var names []string
	for _, t := range c.types {
		if slices.ContainsFunc(t.filled(), unfinished) {
			names = append(names, t.Resource.Resource)
		}
	}
	return names
}

func unfinished(d cache.DoneChecker) bool {
	select {
	case <-d.Done():
		return false
	default:
		return true
	}
}
