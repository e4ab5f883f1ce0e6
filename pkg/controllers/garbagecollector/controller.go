package garbagecollector

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/writelimit"
)

// Name is the controller's name in --controllers, and in logs.
const Name = "garbage-collector-controller"

const (
	// Names of the queues in the workqueue metrics of kube-controller-manager v1.37. The second queue holds owners
	// in deletion that have, or have just lost, the finalizer foregroundDeletion or orphan.
	queueObjects = "garbage_collector_attempt_to_delete"
	queueOwners  = "garbage_collector_attempt_to_orphan"

	// gatherDelay merges events about the dependents of one owner into one sync.
	gatherDelay = 5 * time.Millisecond
	pruneEvery  = 10 * time.Second
	// tries bounds the attempts of one sync after concurrent changes.
	tries = 8
)

// Controller is the garbage collector.
type Controller struct {
	controller.Base
	recorder   record.EventRecorder
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

func newController(cfg Config, b controller.Base) (*Controller, error) {
	api := rest.CopyConfig(b.REST)
	api.WarningHandlerWithContext = rest.NoWarnings{} // the collector also handles deprecated types
	client, err := metadata.NewForConfig(api)
	if err != nil {
		return nil, err
	}
	c := &Controller{Base: b, recorder: b.Recorder(Name), state: newTermState(), metrics: newMetrics(b.Metrics)}
	c.graph = newGraph(b.Clock, c.enqueue)
	c.writer = &writer{client, b.Clock, writelimit.New(b.Clock, writesInFlight), cfg.DryRun, c.metrics}
	if cfg.DryRun {
		c.recorder = &record.FakeRecorder{} // discards events
	}
	loop := controller.LoopConfig{Controller: Name, Queue: queueObjects, Workers: cfg.Workers, Drain: b.Drain, Clock: b.Clock}
	c.objectLoop = controller.NewLoop(loop, b.Metrics, c.reconcileObject).GroupBy(c.graph.groupOf)
	loop.Queue = queueOwners
	c.ownerLoop = controller.NewLoop(loop, b.Metrics, c.reconcileOwner).GroupBy(c.graph.groupOf)
	if c.types, err = newTypes(b, c.graph, cfg.ignored(), c.resync, c.metrics.syncErrors); err != nil {
		return nil, err
	}
	c.owners = newOwnerReader(client, b.Clock, c.graph, c.types)
	c.sweeper = newSweeper(client, b.Clock, c.graph, c.types, c.state.orphaning)
	b.Metrics.MustRegister(gauges{c})
	return c, nil
}

// enqueue adds the keys that a change of the graph concerns to the queues. The loops drop keys outside of a term.
func (c *Controller) enqueue(keys queueKeys) {
	for _, key := range keys.objects {
		c.objectLoop.Add(key)
	}
	for _, key := range keys.owners {
		c.ownerLoop.AddAfter(key, gatherDelay)
	}
}

// resync adds the objects with possible work to the queue. Discovery calls it after changes, and every five minutes in
// case of a lost event. Blocked owners recheck by themselves, because each of their syncs sends reads. Only owners that
// waited for the discovery of a group which is known now are added, too. The same order in each call keeps their rate.
func (c *Controller) resync() {
	c.enqueue(queueKeys{objects: c.graph.candidateKeys().objects})
	unknown := c.types.unknownGroups()
	isKnown := func(u unlistedType) bool { return u.resource[0] == '*' && !slices.Contains(unknown, u.resource[2:]) }
	owners := c.state.ownersWhere(func(r ownerRecord) bool { return slices.ContainsFunc(r.unlisted, isKnown) })
	slices.SortFunc(owners, func(a, b id) int { return slices.Compare(a[:], b[:]) })
	for n, key := range owners {
		c.ownerLoop.AddAfter(key, time.Duration(n)*recheckSpread)
	}
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.state.reset()
	c.owners.reset()
	var loops sync.WaitGroup
	c.ownerLoop.Start(ctx, &loops, nil)
	c.objectLoop.Start(ctx, &loops, nil)
	c.enqueue(c.graph.candidateKeys()) // after the queues exist
	prune := c.Clock.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-prune.C():
			c.owners.prune()
			c.sweeper.prune()
			c.state.prune(c.graph.mayBeGarbage, c.Clock.Now())
		case <-ctx.Done():
			loops.Wait()
			return nil
		}
	}
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error {
	return cmp.Or(c.objectLoop.Healthy(), c.ownerLoop.Healthy())
}
