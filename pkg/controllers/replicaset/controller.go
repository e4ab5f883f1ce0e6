package replicaset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/worker"
)

const (
	// Name is upstream's name of this controller, also the source of its events and the suffix of its user agent.
	Name      = "replicaset-controller"
	queueName = "replicaset" // as upstream: the name label of the workqueue metrics

	// patience is how long a sync may hold up another ReplicaSet: a batch of creates that are answered takes less.
	patience = 100 * time.Millisecond
)

// Defaults of Config.
const (
	defaultWorkers        = 5   // kube-controller-manager v1.37: --concurrent-replicaset-syncs
	defaultWritesInFlight = 32  // more does not make a small API server faster
	defaultBurst          = 500 // kube-controller-manager v1.37: BurstReplicas
)

// Config of the controller. A zero number is replaced by its default.
type Config struct {
	Workers        int // syncs that run at once
	WritesInFlight int // creates, deletes and patches of pods that run at once, over all syncs
	Burst          int // the most pods that one sync creates or deletes

	PodDeletionCost     bool          // gate PodDeletionCost: the annotation counts when pods are ranked
	TerminatingReplicas bool          // gate DeploymentReplicaSetTerminatingReplicas: status.terminatingReplicas is filled
	VerifyFirstWrite    bool          // gate VerifyFirstWrite: see the package comment
	Drain               time.Duration // how long running syncs may go on when the term ends; 0: until they return
}

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

// Controller is the ReplicaSet control loop.
type Controller struct {
	cfg  Config
	deps Deps

	loop    *worker.Loop[cache.ObjectName]
	inTerm  atomic.Bool // handlers need not look anything up otherwise
	horizon horizon
	ledgers *ledgers
	slots   chan struct{} // one element per write in flight
	metrics *metrics
}

// New builds the controller and registers its handlers with the caches, which must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 0 || cfg.WritesInFlight < 0 || cfg.Burst < 0 {
		return nil, errors.New("replicaset: workers, writes in flight and burst must not be negative")
	}
	cfg.Workers = orDefault(cfg.Workers, defaultWorkers)
	cfg.WritesInFlight = orDefault(cfg.WritesInFlight, defaultWritesInFlight)
	cfg.Burst = orDefault(cfg.Burst, defaultBurst)
	c := &Controller{
		cfg:     cfg,
		deps:    deps,
		ledgers: newLedgers(),
		slots:   make(chan struct{}, cfg.WritesInFlight),
	}
	c.metrics = newMetrics(deps.Metrics, c.ledgers, deps.Clock)
	c.loop = worker.New(worker.Config{
		Controller: Name, Queue: queueName, Workers: cfg.Workers, Patience: patience, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	if err := c.register(); err != nil {
		return nil, fmt.Errorf("replicaset: %w", err)
	}
	return c, nil
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
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
	err = c.deps.Pods.Handle(caches.Handler[*caches.Pod]{Add: c.podAdded, Update: c.podUpdated, Delete: c.podDeleted})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if c.deps.Namespaces == nil {
		return nil
	}
	err = c.deps.Namespaces.Handle(caches.Handler[*corev1.Namespace]{Add: c.namespaceAdded, Update: c.namespaceUpdated})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	return nil
}

// Run works for one term: it queues every ReplicaSet and blocks until ctx has ended and every sync has returned. The caches must
// have synced.
func (c *Controller) Run(ctx context.Context) error {
	c.ledgers.reset()
	c.horizon.reset()
	c.inTerm.Store(true)
	defer c.inTerm.Store(false)
	var reading sync.WaitGroup
	defer reading.Wait()
	if c.cfg.VerifyFirstWrite {
		reading.Go(func() { c.readHorizon(ctx) })
	}
	c.loop.Run(ctx, c.deps.ReplicaSets.Names)
	return nil
}

// Healthy fails when a sync is stuck.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

// parallel calls do with 0 to n-1, each call in a goroutine that holds one of the write slots, and returns when all have returned.
func (c *Controller) parallel(n int, do func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		c.slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-c.slots }()
			do(i)
		})
	}
	calls.Wait()
}
