package deployment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/enqueue"
	"minikcm/pkg/controllers/internal/ownership"
)

const (
	// Name is upstream's name of the controller. It is also the event source and the suffix of the user agent.
	Name      = "deployment-controller"
	queueName = "deployment" // as upstream

	// patience is the time after which a blocked sync no longer occupies a worker.
	patience = 100 * time.Millisecond
)

// Deps holds the dependencies of the controller.
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

// Controller is the Deployment control loop. The state between two syncs is in states.
type Controller struct {
	cfg  Config
	deps Deps

	loop     *controller.Loop[cache.ObjectName]
	wake     *enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet]
	inTerm   atomic.Bool // handlers of a standby look nothing up
	baseline controller.Baseline
	states   *states
	metrics  *metrics
	loader   controller.Loader[syncState, decision]

	owners ownership.Changer[*appsv1.Deployment, *appsv1.ReplicaSet]
}

// New returns a controller and registers its handlers. The caches must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	c := &Controller{cfg: cfg, deps: deps, states: controller.NewKeyStates[cache.ObjectName](newState)}
	c.wake = c.wakes()
	c.metrics = newMetrics(deps.Metrics, c.states, deps.Clock)
	c.owners = ownership.Changer[*appsv1.Deployment, *appsv1.ReplicaSet]{
		Kind: ownerKind, Noun: "replica set", Objects: deps.ReplicaSets, Get: c.liveDeployment, Patch: c.patchOwner, Recorder: deps.Recorder, Clock: deps.Clock,
	}
	c.loader = controller.Loader[syncState, decision]{
		Baseline: &c.baseline, Cached: c.cachedState, Live: c.liveState, Decide: c.claimAndPlan, Writes: c.writesAnything, Unconfirmed: unconfirmed,
	}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: queueName, Workers: cfg.Workers, Patience: patience, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	if err := c.register(); err != nil {
		return nil, fmt.Errorf("deployment: %w", err)
	}
	return c, nil
}

// Run queues every Deployment and runs until ctx is done and all syncs have returned. The caches must have synced.
func (c *Controller) Run(ctx context.Context) error {
	c.states.Reset()
	c.baseline.Reset()
	c.inTerm.Store(true)
	defer c.inTerm.Store(false)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { c.baseline.Read(ctx, c.deps.Client, c.deps.Deployments, c.deps.ReplicaSets) })
	c.loop.Run(ctx, c.deps.Deployments.Names)
	return nil
}

// Healthy fails when a sync is stuck.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

func (c *Controller) register() error {
	return errors.Join(
		c.deps.Deployments.Handle(caches.Handler[*appsv1.Deployment]{
			Add: c.enqueue, Update: func(_, d *appsv1.Deployment) { c.enqueue(d) }, Delete: c.enqueue,
		}),
		c.deps.ReplicaSets.Handle(caches.Handler[*appsv1.ReplicaSet]{Add: c.wake.OnAdd, Update: c.wake.OnUpdate, Delete: c.wake.OnDelete}),
		c.deps.Pods.Handle(caches.Handler[*caches.Pod]{Update: c.podUpdated, Delete: c.podDeleted}),
		c.deps.Namespaces.Handle(c.wake.NamespaceHandler()),
	)
}

func (c *Controller) enqueue(d *appsv1.Deployment) { c.loop.Add(cache.MetaObjectToName(d)) }

// wakes maps events of ReplicaSets and namespaces to Deployments.
func (c *Controller) wakes() *enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet] {
	return &enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet]{
		Kind: kind, InTerm: &c.inTerm, Get: c.deps.Deployments.Get, In: c.deps.Deployments.InNamespace,
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		Enqueue:  c.enqueue,
	}
}

// podUpdated enqueues a Deployment that may wait for old pods to stop: no event of the ReplicaSet has to follow.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	if c.inTerm.Load() && (!old.IsFinished() && pod.IsFinished() || old.ControllerUID() != pod.ControllerUID()) {
		c.enqueueRecreated(old)
	}
}

func (c *Controller) podDeleted(pod *caches.Pod) {
	if c.inTerm.Load() {
		c.enqueueRecreated(pod)
	}
}

func (c *Controller) enqueueRecreated(pod *caches.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return
	}
	rs, ok := c.deps.ReplicaSets.Get(cache.NewObjectName(pod.Namespace, ref.Name))
	if !ok || rs.UID != ref.UID {
		return
	}
	if d, ok := c.wake.OwnerOf(rs); ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		c.enqueue(d)
	}
}
