package caches

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/freshness"
)

// Config of the caches.
type Config struct {
	// Name is the name label of the informer metrics. A second set of caches of one name in the same process has no informer
	// metrics.
	Name string
	// Resync is how often handlers are told of every object again; zero never.
	Resync time.Duration
	// LeaseNamespaces are the namespaces whose Leases are kept with their holder and times. If it is only one, no other is watched.
	LeaseNamespaces []string
	// LeaseClient is what Leases are watched with, if not with the client of all other types.
	LeaseClient kubernetes.Interface
	// REST makes the client of a type that comes without an informer; nil: there can be none. An empty content type is that of all others.
	REST func(*rest.ContentConfig) (rest.Interface, error)
	// Line is what the clients were made with; nil: ordinary ones.
	Line *freshness.Line
}

// Caches are built in three steps, in one goroutine: New, then whoever wants a type asks for it and registers handlers, then
// Start. After that everything may be called from any goroutine.
type Caches struct {
	cfg     Config
	name    *cache.InformerName
	factory informers.SharedInformerFactory

	pods        *Pods
	deployments bool // are watched

	stores  map[schema.GroupVersionResource]any // Store[T]
	types   []watchedType
	started bool
}

// watchedType is one type that is watched.
type watchedType struct {
	freshness.Watched
	synced  cache.DoneChecker
	handled []cache.DoneChecker
}

// New returns caches that watch nothing yet. The client should be neither rate limited nor fenced.
func New(client kubernetes.Interface, cfg Config) *Caches {
	options := []informers.SharedInformerOption{}
	name, err := cache.NewInformerName(cfg.Name)
	if err == nil {
		options = append(options, informers.WithInformerName(name))
	}
	c := &Caches{
		cfg:     cfg,
		name:    name,
		stores:  map[schema.GroupVersionResource]any{},
		factory: informers.NewSharedInformerFactoryWithOptions(client, cfg.Resync, options...),
	}
	if cfg.Line != nil {
		cfg.Line.FilledBy(c.synced)
	}
	return c
}

// synced reports whether the cache that is filled from an API path holds its first list. It is called once Start has been, and
// the API server may be behind a prefix.
func (c *Caches) synced(request string) bool {
	for _, t := range c.types {
		if strings.HasSuffix(request, collectionPath(t.Resource, t.Namespace)) {
			return !unfinished(t.synced)
		}
	}
	return false
}

// collectionPath is where all objects of a type are listed and watched.
func collectionPath(gvr schema.GroupVersionResource, namespace string) string {
	elements := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		elements = []string{"/api", gvr.Version}
	}
	if namespace != "" {
		elements = append(elements, "namespaces", namespace)
	}
	return path.Join(append(elements, gvr.Resource)...)
}

// Types lists the watched types in the order they were first asked for.
func (c *Caches) Types() []freshness.Watched {
	types := make([]freshness.Watched, len(c.types))
	for i, t := range c.types {
		types[i] = t.Watched
	}
	return types
}

// Start starts every informer that somebody asked for. They run until ctx ends; Shutdown waits for them.
func (c *Caches) Start(ctx context.Context) {
	c.started = true
	c.factory.StartWithContext(ctx)
}

// Shutdown waits until every informer has stopped. The context of Start must have ended.
func (c *Caches) Shutdown() {
	c.factory.Shutdown()
	c.name.Release()
}

// WaitForSync blocks until every cache holds its first list and every handler has seen it, or ctx has ended. It then gives the
// memory that only the lists needed back to the operating system.
func (c *Caches) WaitForSync(ctx context.Context) error {
	for _, t := range c.types {
		checkers := append([]cache.DoneChecker{t.synced}, t.handled...)
		if !cache.WaitFor(ctx, "", checkers...) { // unnamed it logs nothing
			return fmt.Errorf("wait for the cache of %s: %w", t.Resource.Resource, context.Cause(ctx))
		}
		klog.FromContext(ctx).V(2).Info("Cache synced", "resource", t.Resource.Resource, "resourceVersion", t.Version())
	}
	debug.FreeOSMemory()
	return nil
}

// Unsynced names the watched resources whose first list, or a handler's view of it, is still missing.
func (c *Caches) Unsynced() []string {
	var names []string
	for _, t := range c.types {
		if slices.ContainsFunc(append([]cache.DoneChecker{t.synced}, t.handled...), unfinished) {
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
