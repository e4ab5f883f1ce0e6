package garbagecollector

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

const (
	// Names of the queues in the workqueue metrics of kube-controller-manager v1.37. The second queue holds all owners
	// that are being deleted.
	queueObjects = "garbage_collector_attempt_to_delete"
	queueOwners  = "garbage_collector_attempt_to_orphan"

	// ownerPause merges events about the dependents of one owner into one sync.
	ownerPause = 5 * time.Millisecond
	pruneEvery = 10 * time.Second
)

// Deps are the dependencies of the controller.
type Deps struct {
	Metadata metadata.Interface // fenced
	Caches   *caches.Caches     // feeds start and end with them
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	Metrics  prometheus.Registerer
}

// Controller is the garbage collector.
type Controller struct {
	deps       Deps
	graph      *graph
	types      *knownTypes
	objectLoop *controller.Loop[id]
	ownerLoop  *controller.Loop[id]
	owners     *ownerReader
	sweeper    *sweeper
	writer     *writer
	state      *termState
	metrics    *metrics
}

// New returns a controller whose graph is fed by the caches. The caches must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 1 {
		return nil, fmt.Errorf("%d concurrent garbage collector syncs: at least 1 is needed", cfg.Workers)
	}
	c := &Controller{deps: deps, state: newTermState(), metrics: newMetrics(deps.Metrics)}
	c.graph = newGraph(deps.Clock, c.enqueue)
	c.writer = newWriter(deps.Metadata, deps.Clock, cfg.DryRun, c.metrics)
	if cfg.DryRun {
		c.deps.Recorder = &record.FakeRecorder{} // discards events
	}
	loop := controller.LoopConfig{Controller: Name, Queue: queueObjects, Workers: cfg.Workers, Drain: cfg.Drain, Clock: deps.Clock}
	c.objectLoop = controller.NewLoop(loop, deps.Metrics, c.reconcileObject).GroupBy(c.graph.groupOf)
	loop.Queue = queueOwners
	c.ownerLoop = controller.NewLoop(loop, deps.Metrics, c.reconcileOwner).GroupBy(c.graph.groupOf)
	var err error
	c.types, err = newTypes(typesDeps{
		Graph: c.graph, Caches: deps.Caches, Ignored: cfg.ignored(), Clock: deps.Clock, Changed: c.resync, SyncError: c.metrics.syncErrors.Inc,
	})
	if err != nil {
		return nil, fmt.Errorf("garbage collector: %w", err)
	}
	c.owners = newOwnerReader(deps.Metadata, deps.Clock, c.graph, c.types)
	c.sweeper = newSweeper(deps.Metadata, deps.Clock, c.graph, c.types, c.state.finishing)
	deps.Metrics.MustRegister(gauges{c})
	return c, nil
}

// enqueue adds the keys that a change of the graph concerns to the queues. The loops drop keys outside of a term.
func (c *Controller) enqueue(w queueKeys) {
	for _, key := range w.objects {
		c.objectLoop.Add(key)
	}
	for _, key := range w.owners {
		c.ownerLoop.AddAfter(key, ownerPause)
	}
}

// resync adds all keys with possible work to the queues. Discovery calls it after changes, and every five minutes in
// case of a lost event.
func (c *Controller) resync() { c.enqueue(c.graph.all()) }

// Run works for one term. It returns nil when ctx has ended and every sync has returned.
func (c *Controller) Run(ctx context.Context) error {
	c.state.reset()
	c.owners.reset()
	var loops sync.WaitGroup
	c.ownerLoop.Start(ctx, &loops, nil)
	c.objectLoop.Start(ctx, &loops, nil)
	c.resync() // after the queues exist
	prune := c.deps.Clock.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-prune.C():
			c.owners.prune()
			c.sweeper.prune()
			c.state.prune(c.graph.mayBeGarbage, c.deps.Clock.Now())
		case <-ctx.Done():
			loops.Wait()
			return nil
		}
	}
}

// Healthy returns an error while a sync is stuck.
func (c *Controller) Healthy() error {
	return cmp.Or(c.objectLoop.Healthy(), c.ownerLoop.Healthy())
}
