package deployment

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/enqueue"
	"minikcm/pkg/controllers/internal/ownership"
)

const (
	// Name is upstream's name of the controller. It is also the event source and the suffix of the user agent.
	Name      = "deployment-controller"
	queueName = "deployment" // as upstream

	// slowAfter is the time after which a blocked sync no longer occupies a worker.
	slowAfter = 100 * time.Millisecond
)

// Controller is the Deployment control loop. The state between two syncs is in states.
type Controller struct {
	controller.Base
	cfg      Config
	recorder record.EventRecorder

	deployments *caches.Deployments
	replicaSets *caches.ReplicaSets
	pods        *caches.Pods
	namespaces  *caches.Namespaces

	loop     *controller.Loop[cache.ObjectName]
	enqueuer *enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet] // from ReplicaSets and namespaces to Deployments
	inTerm   atomic.Bool                                             // handlers of a standby look nothing up
	baseline controller.Baseline
	states   *states
	metrics  *metrics
	loader   controller.Loader[syncState, plan]

	owners ownership.Changer[*appsv1.Deployment, *appsv1.ReplicaSet]
}

func newController(cfg Config, b controller.Base) (*Controller, error) {
	c := &Controller{Base: b, cfg: cfg, recorder: b.Recorder(Name), states: controller.NewKeyStates[cache.ObjectName](newState)}
	if err := errors.Join(
		caches.Request(&c.deployments, b.Caches.Deployments), caches.Request(&c.replicaSets, b.Caches.ReplicaSets),
		caches.Request(&c.pods, b.Caches.Pods), caches.Request(&c.namespaces, b.Caches.Namespaces),
	); err != nil {
		return nil, err
	}
	c.enqueuer = &enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet]{
		Kind: kind, InTerm: &c.inTerm, Get: c.deployments.Get, In: c.deployments.InNamespace,
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		Enqueue:  c.enqueue,
	}
	c.metrics = newMetrics(b.Metrics, c.states, b.Clock)
	c.owners = ownership.Changer[*appsv1.Deployment, *appsv1.ReplicaSet]{
		Kind: ownerKind, Noun: "replica set", Objects: c.replicaSets, Get: c.liveDeployment, Patch: c.patchOwner, Recorder: c.recorder, Clock: b.Clock,
	}
	c.loader = controller.Loader[syncState, plan]{
		Baseline: &c.baseline, Cached: c.readCached, Live: c.readLive, Decide: c.claimAndPlan, Writes: c.changesCluster, Unconfirmed: needsConfirmation,
	}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: queueName, Workers: cfg.Workers, SlowAfter: slowAfter, Drain: b.Drain, Clock: b.Clock,
	}, b.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	return c, c.addHandlers()
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.states.Reset()
	c.baseline.Reset()
	c.inTerm.Store(true)
	defer c.inTerm.Store(false)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		apps := c.Client.AppsV1()
		c.baseline.Read(ctx, caches.LatestVersion(c.deployments, apps.Deployments("").List),
			caches.LatestVersion(c.replicaSets, apps.ReplicaSets("").List))
	})
	c.loop.Run(ctx, c.deployments.Names)
	return nil
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

func (c *Controller) addHandlers() error {
	return errors.Join(
		c.deployments.Handle(caches.Handler[*appsv1.Deployment]{
			Add: c.enqueue, Update: func(_, d *appsv1.Deployment) { c.enqueue(d) }, Delete: c.enqueue,
		}),
		c.replicaSets.Handle(caches.Handler[*appsv1.ReplicaSet]{Add: c.enqueuer.OnAdd, Update: c.enqueuer.OnUpdate, Delete: c.enqueuer.OnDelete}),
		c.pods.Handle(caches.Handler[*caches.Pod]{Delete: c.podDeleted}),
		c.namespaces.Handle(c.enqueuer.NamespaceHandler()),
	)
}

func (c *Controller) enqueue(d *appsv1.Deployment) { c.loop.Add(cache.MetaObjectToName(d)) }

// podDeleted enqueues a Deployment that may wait for old pods to stop: no event of the ReplicaSet has to follow.
func (c *Controller) podDeleted(pod *caches.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || !c.inTerm.Load() {
		return
	}
	rs, ok := c.replicaSets.Get(cache.NewObjectName(pod.Namespace, ref.Name))
	if !ok || rs.UID != ref.UID {
		return
	}
	if d, ok := c.enqueuer.OwnerOf(rs); ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		c.enqueue(d)
	}
}
