package replicaset

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
	"minikcm/pkg/controllers/internal/writelimit"
)

const (
	// Name is upstream's name of this controller, also the source of its events and the suffix of its user agent.
	Name      = "replicaset-controller"
	queueName = "replicaset" // as upstream: the name label of the workqueue metrics

	// patience is how long a sync may hold up another ReplicaSet: a batch of creates that are answered takes less.
	patience = 100 * time.Millisecond
)

// burst is the most pods that one sync creates or deletes: kube-controller-manager v1.37, BurstReplicas.
const burst = 500

// Writes in flight, over all ReplicaSets; see package slots.
const (
	quickWrites = 96  // a ReplicaSet alone has a third: more does not make a small API server faster
	allWrites   = 300 // half of what a kube-apiserver v1.37 works on at once: 200 that mutate and 400 others, shared by priority and fairness
)

// syncLimit is how long a sync goes on sending writes. What is left then is done by the next sync of the key, which comes at once.
const syncLimit = 30 * time.Second

// Deps are what the controller works with. Only Namespaces may be nil: it saves requests in terminating namespaces.
type Deps struct {
	Client      kubernetes.Interface // fenced
	Pods        *caches.Pods
	ReplicaSets *caches.ReplicaSets
	Namespaces  *caches.Namespaces
	Recorder    record.EventRecorder
	Clock       clock.WithTicker
	Metrics     prometheus.Registerer
}

// Controller is the ReplicaSet control loop: the wiring, the event handlers and the one reconcile. What it does to pods and statuses is the job
// of its parts, which keep nothing of their own from one sync to the next: that is in the states.
type Controller struct {
	cfg  Config
	deps Deps

	loop     *controller.Loop[cache.ObjectName]
	wake     *enqueue.Owners[*appsv1.ReplicaSet, *caches.Pod]
	inTerm   atomic.Bool                 // handlers need not look anything up otherwise
	log      atomic.Pointer[klog.Logger] // of the latest term, for handlers; nil before the first
	baseline controller.Baseline
	states   *states
	metrics  *metrics
	loader   controller.Loader[task, decision]

	read     *reader
	owners   ownership.Changer[*appsv1.ReplicaSet, *caches.Pod]
	slots    *writelimit.Slots
	creator  *creator
	remover  *remover
	statuses *statusWriter
}

// New builds the controller and registers its handlers with the caches, which must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 0 || cfg.Burst < 0 {
		return nil, errors.New("replicaset: workers and burst must not be negative")
	}
	cfg.Workers = cmp.Or(cfg.Workers, DefaultConfig().Workers)
	cfg.Burst = cmp.Or(cfg.Burst, burst)
	c := &Controller{cfg: cfg, deps: deps, states: controller.NewKeyStates[cache.ObjectName](newState)}
	c.wake = c.wakes()
	c.metrics = newMetrics(deps.Metrics, c.states, deps.Clock)
	c.slots = writelimit.New(deps.Clock, quickWrites, allWrites)
	c.read = &reader{client: deps.Client, pods: deps.Pods, sets: deps.ReplicaSets, metrics: c.metrics}
	c.owners = ownership.Changer[*appsv1.ReplicaSet, *caches.Pod]{
		Kind: ownerKind, Noun: "pod", Objects: deps.Pods, Get: c.read.set, Patch: c.patchPod, Recorder: deps.Recorder, Clock: deps.Clock,
	}
	c.remover = &remover{
		client: deps.Client, pods: deps.Pods, sets: deps.ReplicaSets, read: c.read, slots: c.slots, recorder: deps.Recorder, clock: deps.Clock,
		metrics: c.metrics, honourCost: cfg.PodDeletionCost,
	}
	c.creator = &creator{
		client: deps.Client, pods: deps.Pods, namespaces: deps.Namespaces, read: c.read, remover: c.remover, slots: c.slots,
		recorder: deps.Recorder, clock: deps.Clock, metrics: c.metrics,
	}
	c.statuses = &statusWriter{client: deps.Client, sets: deps.ReplicaSets, read: c.read, clock: deps.Clock, terminating: cfg.TerminatingReplicas}
	c.loader = controller.Loader[task, decision]{
		Baseline: &c.baseline, Cached: c.read.cached, Live: c.read.live, Decide: c.claimAndPlan, Writes: c.writes, Unconfirmed: unconfirmed,
	}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: queueName, Workers: cfg.Workers, Patience: patience, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	if err := c.register(); err != nil {
		return nil, fmt.Errorf("replicaset: %w", err)
	}
	return c, nil
}

func (c *Controller) register() error {
	err := c.deps.ReplicaSets.Handle(caches.Handler[*appsv1.ReplicaSet]{
		Add:    func(rs *appsv1.ReplicaSet) { c.enqueue(rs) },
		Update: func(_, rs *appsv1.ReplicaSet) { c.enqueue(rs) },
		Delete: func(rs *appsv1.ReplicaSet) { c.enqueue(rs) },
	})
	if err != nil {
		return fmt.Errorf("watch ReplicaSets: %w", err)
	}
	err = c.deps.Pods.Handle(caches.Handler[*caches.Pod]{Add: c.wake.Added, Update: c.podUpdated, Delete: c.wake.Deleted})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if c.deps.Namespaces == nil {
		return nil
	}
	err = c.deps.Namespaces.Handle(c.wake.Namespaces())
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	return nil
}

// Run works for one term: it queues every ReplicaSet and blocks until ctx has ended and every sync has returned. The caches must
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
	c.loop.Run(ctx, c.deps.ReplicaSets.Names)
	return nil
}

// Healthy fails when a sync is stuck.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

// latest asks the API server how far ReplicaSets and pods have come.
func (c *Controller) latest(ctx context.Context) (controller.Versions, error) {
	pods, podsErr := c.deps.Pods.Latest(ctx, c.deps.Client)
	sets, setsErr := c.deps.ReplicaSets.Latest(ctx, c.deps.Client)
	if err := errors.Join(podsErr, setsErr); err != nil {
		return nil, err
	}
	return controller.Versions{
		{Resource: c.deps.Pods.Resource(), Version: pods}, {Resource: c.deps.ReplicaSets.Resource(), Version: sets},
	}, nil
}
