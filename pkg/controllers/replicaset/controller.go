package replicaset

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
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/enqueue"
	"minikcm/pkg/controllers/internal/ownership"
	"minikcm/pkg/controllers/internal/writelimit"
)

const (
	// Name is the upstream name of the controller, the source of its events and the suffix of its user
	// agent.
	Name      = "replicaset-controller"
	queueName = "replicaset" // upstream's name label of the workqueue metrics

	// slowAfter is the time after which a blocked sync no longer occupies a worker. A batch of creates usually takes
	// less.
	slowAfter = 100 * time.Millisecond
)

// burst is the maximum number of pods that one sync creates or deletes (kube-controller-manager v1.37,
// BurstReplicas).
const burst = 500

// writesInFlight is the maximum over all ReplicaSets; see package writelimit. It is half of the requests that
// kube-apiserver v1.37 works on at a time.
const writesInFlight = 300

// syncLimit is the longest time, from the start of a sync, for which a write waits for a slot. Then the key
// is requeued at once for the rest.
const syncLimit = 30 * time.Second

// Controller is the ReplicaSet control loop. The state between two syncs is in states.
type Controller struct {
	controller.Base
	cfg      Config
	recorder record.EventRecorder

	pods        *caches.Pods
	replicaSets *caches.ReplicaSets
	namespaces  *caches.Namespaces

	loop     *controller.Loop[cache.ObjectName]
	enqueuer *enqueue.Owners[*appsv1.ReplicaSet, *caches.Pod] // from pods and namespaces to ReplicaSets
	inTerm   atomic.Bool
	log      atomic.Pointer[klog.Logger] // of the latest term; nil before the first
	baseline controller.Baseline
	states   *states
	metrics  *metrics
	loader   controller.Loader[syncState, decision]

	owners ownership.Changer[*appsv1.ReplicaSet, *caches.Pod]
	slots  *writelimit.Slots

	dropsTerminating atomic.Bool // the API server dropped status.terminatingReplicas from the last status
}

func newController(cfg Config, b controller.Base) (*Controller, error) {
	c := &Controller{Base: b, cfg: cfg, recorder: b.Recorder(Name), states: controller.NewKeyStates[cache.ObjectName](newState)}
	if err := errors.Join(
		caches.Request(&c.pods, b.Caches.Pods), caches.Request(&c.replicaSets, b.Caches.ReplicaSets), caches.Request(&c.namespaces, b.Caches.Namespaces),
	); err != nil {
		return nil, err
	}
	c.enqueuer = &enqueue.Owners[*appsv1.ReplicaSet, *caches.Pod]{
		Kind: kind, InTerm: &c.inTerm, Get: c.replicaSets.Get, In: c.replicaSets.InNamespace,
		Selector: func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
		Enqueue:  c.enqueue,
		Several: func(pod *caches.Pod, sets []*appsv1.ReplicaSet) {
			// Not utilruntime.HandleError, which may sleep: handlers must not delay the watch.
			c.log.Load().Error(nil, "More than one ReplicaSet selects the pod",
				"controller", Name, "pod", klog.KObj(pod), "replicaSets", klog.KObjSlice(sets))
		},
	}
	c.metrics = newMetrics(b.Metrics, c.states, b.Clock)
	c.slots = writelimit.New(b.Clock, writesInFlight)
	c.owners = ownership.Changer[*appsv1.ReplicaSet, *caches.Pod]{
		Kind: ownerKind, Noun: "pod", Objects: c.pods, Get: c.liveReplicaSet, Patch: c.patchPod, Recorder: c.recorder, Clock: b.Clock,
	}
	c.loader = controller.Loader[syncState, decision]{
		Baseline: &c.baseline, Cached: c.readCached, Live: c.readLive, Decide: c.claimAndPlan, Writes: c.changesCluster, Unconfirmed: needsConfirmation,
	}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: queueName, Workers: cfg.Workers, SlowAfter: slowAfter, Drain: b.Drain, Clock: b.Clock,
	}, b.Metrics, c.reconcile).GroupBy(func(key cache.ObjectName) string { return key.Namespace })
	return c, c.addHandlers()
}

func (c *Controller) addHandlers() error {
	return errors.Join(
		c.replicaSets.Handle(caches.Handler[*appsv1.ReplicaSet]{
			Add: c.enqueue, Update: func(_, rs *appsv1.ReplicaSet) { c.enqueue(rs) }, Delete: c.enqueue,
		}),
		c.pods.Handle(caches.Handler[*caches.Pod]{Add: c.enqueuer.OnAdd, Update: c.podUpdated, Delete: c.enqueuer.OnDelete}),
		c.namespaces.Handle(c.enqueuer.NamespaceHandler()),
	)
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.states.Reset()
	c.baseline.Reset()
	c.log.Store(new(klog.FromContext(ctx)))
	c.inTerm.Store(true)
	defer c.inTerm.Store(false)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		c.baseline.Read(ctx, caches.LatestVersion(c.pods, c.Client.CoreV1().Pods("").List),
			caches.LatestVersion(c.replicaSets, c.Client.AppsV1().ReplicaSets("").List))
	})
	c.loop.Run(ctx, c.replicaSets.Names)
	return nil
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

func (c *Controller) enqueue(rs *appsv1.ReplicaSet) { c.loop.Add(cache.MetaObjectToName(rs)) }

// gatherDelay delays syncs after updates of pods, for ReplicaSets with more than fewPods pods: pods often
// become ready together.
const gatherDelay = 20 * time.Millisecond

// podUpdated enqueues the ReplicaSet of a pod.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	if !c.inTerm.Load() {
		return
	}
	rs, ok := c.enqueuer.OwnerOf(pod)
	if ok && pod.IsActive() && old.ControllerUID() == pod.ControllerUID() && wantedReplicas(rs) > fewPods {
		c.loop.AddAfter(cache.MetaObjectToName(rs), gatherDelay)
	} else {
		c.enqueuer.OnUpdate(old, pod)
	}
}
