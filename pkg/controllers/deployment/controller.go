package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/enqueue"
	"minikcm/pkg/controllers/internal/ownership"
)

const (
	// Name is upstream's name of this controller, also the source of its events and the suffix of its user agent.
	Name      = "deployment-controller"
	queueName = "deployment" // as upstream: the name label of the workqueue metrics

	// patience is how long a sync may hold up another Deployment: a few writes that are answered take less.
	patience = 100 * time.Millisecond
)

// Deps are what the controller works with. Only Namespaces may be nil: it saves requests in terminating namespaces.
type Deps struct {
	Client      kubernetes.Interface // fenced
	Deployments *caches.Deployments
	ReplicaSets *caches.ReplicaSets
	Pods        *caches.Pods
	Namespaces  *caches.Namespaces
	Recorder    record.EventRecorder
	Clock       clock.WithTicker
	Metrics     prometheus.Registerer
}

// Controller is the Deployment control loop: the wiring, the event handlers and the one reconcile. What it does to ReplicaSets and statuses is the
// job of its parts, which keep nothing of their own from one sync to the next: that is in the memories.
type Controller struct {
	cfg  Config
	deps Deps

	loop     *controller.Loop[cache.ObjectName]
	wake     *enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet]
	inTerm   atomic.Bool                 // handlers need not look anything up otherwise
	log      atomic.Pointer[klog.Logger] // of the latest term, for handlers; nil before the first
	baseline controller.Baseline
	states   *states
	metrics  *metrics
	loader   controller.Loader[syncState, decision]

	read     *reader
	owners   ownership.Changer[*appsv1.Deployment, *appsv1.ReplicaSet]
	writes   *writer
	statuses *statusWriter
}

// New builds the controller and registers its handlers with the caches, which must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 0 {
		return nil, errors.New("deployment: workers must not be negative")
	}
	cfg.Workers = cmp.Or(cfg.Workers, DefaultConfig().Workers)
	c := &Controller{cfg: cfg, deps: deps, states: controller.NewKeyStates[cache.ObjectName](newState)}
	c.wake = c.wakes()
	c.metrics = newMetrics(deps.Metrics, c.states, deps.Clock)
	c.read = &reader{client: deps.Client, deployments: deps.Deployments, sets: deps.ReplicaSets, pods: deps.Pods, metrics: c.metrics}
	c.owners = ownership.Changer[*appsv1.Deployment, *appsv1.ReplicaSet]{
		Kind: ownerKind, Noun: "replica set", Objects: deps.ReplicaSets, Get: c.read.deploymentToAdopt, Patch: c.patchOwner, Recorder: deps.Recorder, Clock: deps.Clock,
	}
	c.writes = &writer{
		client: deps.Client, deployments: deps.Deployments, sets: deps.ReplicaSets, read: c.read, recorder: deps.Recorder, clock: deps.Clock, metrics: c.metrics,
	}
	c.statuses = &statusWriter{client: deps.Client, deployments: deps.Deployments, clock: deps.Clock}
	c.loader = controller.Loader[syncState, decision]{
		Baseline: &c.baseline, Cached: c.read.cached, Live: c.read.live, Decide: c.claimAndPlan, Writes: c.writesAnything, Unconfirmed: unconfirmed,
	}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: queueName, Workers: cfg.Workers, Patience: patience, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	if err := c.register(); err != nil {
		return nil, fmt.Errorf("deployment: %w", err)
	}
	return c, nil
}

// Run works for one term: it queues every Deployment and blocks until ctx has ended and every sync has returned. The caches must
// have synced.
func (c *Controller) Run(ctx context.Context) error {
	c.states.Reset()
	c.baseline.Reset()
	c.log.Store(new(klog.FromContext(ctx)))
	c.inTerm.Store(true)
	defer c.inTerm.Store(false)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { c.baseline.Read(ctx, c.deps.Clock, c.latest) })
	c.loop.Run(ctx, c.deps.Deployments.Names)
	return nil
}

// Healthy fails when a sync is stuck.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

// latest asks the API server how far Deployments and ReplicaSets have come.
func (c *Controller) latest(ctx context.Context) (controller.Versions, error) {
	deployments, deploymentsErr := c.deps.Deployments.Latest(ctx, c.deps.Client)
	sets, setsErr := c.deps.ReplicaSets.Latest(ctx, c.deps.Client)
	if err := errors.Join(deploymentsErr, setsErr); err != nil {
		return nil, err
	}
	return controller.Versions{
		{Resource: c.deps.Deployments.Resource(), Version: deployments}, {Resource: c.deps.ReplicaSets.Resource(), Version: sets},
	}, nil
}
