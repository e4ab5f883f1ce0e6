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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
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

// Writes in flight, over all ReplicaSets; see slots.
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

// Controller is the ReplicaSet control loop.
type Controller struct {
	cfg  Config
	deps Deps

	loop    *controller.Loop[cache.ObjectName]
	inTerm  atomic.Bool // handlers need not look anything up otherwise
	horizon horizon
	ledgers *ledgers
	slots   *slots
	metrics *metrics
}

// New builds the controller and registers its handlers with the caches, which must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 0 || cfg.Burst < 0 {
		return nil, errors.New("replicaset: workers and burst must not be negative")
	}
	cfg.Workers = cmp.Or(cfg.Workers, DefaultConfig().Workers)
	cfg.Burst = cmp.Or(cfg.Burst, burst)
	c := &Controller{
		cfg:     cfg,
		deps:    deps,
		ledgers: newLedgers(),
		slots:   newSlots(deps.Clock, quickWrites, allWrites),
	}
	c.metrics = newMetrics(deps.Metrics, c.ledgers, deps.Clock)
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

// parallel calls do with 0 to n-1, each call in a goroutine that holds a slot, and returns when all have returned. It returns how many it began,
// and if not all, why: errCut when the time of the sync is up, controller.ErrDraining when the term is.
func (p *pass) parallel(ctx context.Context, n int, do func(i int)) (begun int, err error) {
	var calls sync.WaitGroup
	for begun < n {
		w := p.slots.acquire(ctx, p.key, p.now.Add(syncLimit))
		if w == nil {
			err = errCut
			if controller.Draining(ctx) {
				err = controller.ErrDraining
			}
			break
		}
		i := begun
		calls.Go(func() {
			defer p.slots.release(w)
			do(i)
		})
		begun++
	}
	calls.Wait()
	return begun, err
}

// errCut ends a sync whose time is up. It is not a failure: the key is queued again at once.
var errCut = errors.New("the time of the sync is up")
