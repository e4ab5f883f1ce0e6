package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/discovery"
)

const (
	// Name is the controller's name in --controllers, and in logs.
	Name = "namespace-controller"

	// defaultGrace is the fixed grace period of kube-controller-manager. It covers the lag between API servers.
	defaultGrace = 5 * time.Second
	// minBackoff spares the API server the ten passes in two seconds that client-go's 5 ms lead to.
	minBackoff = 100 * time.Millisecond
	// patience is for passes over every type: long enough for all that are answered, so that more namespaces are worked on at once than
	// asked for only while some wait for APIs that do not answer.
	patience = 10 * time.Second
)

// Deps are what the controller works with.
type Deps struct {
	Client     kubernetes.Interface // fenced
	Metadata   metadata.Interface   // fenced; preferably from NewMetadataClient
	Discovery  discovery.Client     // uncached, of the fenced config
	Namespaces *caches.Namespaces
	Pods       *caches.Pods // only tells when to sync: nothing is decided from it
	Recorder   record.EventRecorder
	Clock      clock.WithTicker
	Metrics    prometheus.Registerer
}

// Controller finishes Terminating namespaces.
type Controller struct {
	cfg       Config
	deps      Deps
	loop      *controller.Loop[string]
	metrics   *metrics
	slots     *semaphore.Weighted
	patient   *semaphore.Weighted // syncs that may wait for slow types; the other workers are for the other namespaces
	deletions deletions

	// Of the current term; set by beginTerm before any sync.
	catalogue *discovery.Catalogue
	triggers  *triggers
	silence   *silence
	lock      sync.Mutex
	memories  map[string]*memory
}

// memory is what is remembered of a namespace during a term. Losing it costs requests, nothing else.
type memory struct {
	uid        types.UID
	settled    time.Time                                  // when no create is under way any more that was admitted before the deletion
	emptyTypes map[discovery.Type]listing                 // the types that were seen empty after the grace; they are not listed again before everything else is
	stale      map[unique.Handle[discovery.Type]]struct{} // seen empty too long ago for a proof: listed again at the end
	failures   map[discovery.Type]int                     // how often each type failed
	strides    *strides
	wait       wait
	notice     notice
}

// New returns a controller and registers its handlers. It sends no request.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 1 {
		return nil, fmt.Errorf("%d concurrent namespace syncs: at least 1 is needed", cfg.Workers)
	}
	if cfg.Grace < 0 || cfg.SyncPeriod < 0 {
		return nil, errors.New("namespace deletion grace and sync period must not be negative")
	}
	c := &Controller{cfg: cfg, deps: deps, metrics: newMetrics(deps.Metrics), slots: semaphore.NewWeighted(requestsAtOnce), patient: patientSyncs(cfg.Workers)}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: "namespace", Workers: cfg.Workers, MinBackoff: minBackoff, Patience: patience, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile)
	if err := deps.Namespaces.Handle(caches.Handler[*corev1.Namespace]{
		Add:    c.onAdd,
		Update: c.onUpdate,
		Delete: func(gone *corev1.Namespace) { c.deletions.forget(gone.UID) },
	}); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	if err := deps.Pods.Handle(caches.Handler[*caches.Pod]{Delete: c.onPodGone}); err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	return c, nil
}

// patientSyncs admits half of the workers, and one at least.
func patientSyncs(workers int) *semaphore.Weighted {
	return semaphore.NewWeighted(int64(max(workers/2, 1)))
}

func (c *Controller) onAdd(ns *corev1.Namespace) {
	if ns.DeletionTimestamp != nil {
		c.deletions.note(ns.UID, c.deps.Clock.Now())
		c.loop.Add(ns.Name)
	}
}

// onUpdate leaves out changes that mean nothing to us, first of all those of the conditions, which are our own.
func (c *Controller) onUpdate(before, ns *corev1.Namespace) {
	if before.UID != ns.UID {
		c.deletions.forget(before.UID)
	}
	if ns.DeletionTimestamp == nil {
		return
	}
	c.deletions.note(ns.UID, c.deps.Clock.Now())
	if before.UID != ns.UID || before.DeletionTimestamp == nil || before.Status.Phase != ns.Status.Phase ||
		!slices.Equal(before.Spec.Finalizers, ns.Spec.Finalizers) {
		c.loop.Add(ns.Name)
	}
}

// onPodGone queues a Terminating namespace when its last pod is gone.
func (c *Controller) onPodGone(pod *caches.Pod) {
	ns, ok := c.deps.Namespaces.Get(cache.NewObjectName("", pod.Namespace))
	if ok && ns.DeletionTimestamp != nil && c.deps.Pods.CountInNamespace(pod.Namespace) == 0 {
		c.loop.Add(pod.Namespace)
	}
}

// onTrigger queues, after the pause, what an event of a watch concerns: the namespace of that name or, if the event is about a broken APIService and
// the key empty, all that are being deleted.
func (c *Controller) onTrigger(key string, pause time.Duration) {
	if key != discoveryKey {
		c.loop.AddAfter(key, pause)
		return
	}
	c.catalogue.Hurry()
	for _, name := range c.terminating() {
		c.loop.AddAfter(name, pause)
	}
}

// terminating names the namespaces that are being deleted, as far as the cache knows.
func (c *Controller) terminating() []string {
	var names []string
	for _, ns := range c.deps.Namespaces.List() {
		if ns.DeletionTimestamp != nil {
			names = append(names, ns.Name)
		}
	}
	return names
}

// Run works for one term, see the worker loop. It always returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.beginTerm()
	var resync sync.WaitGroup
	resync.Go(func() { c.resync(ctx) })
	c.loop.Run(ctx, c.terminating)
	c.triggers.join()
	resync.Wait()
	c.metrics.reset()
	return nil
}

func (c *Controller) beginTerm() {
	c.catalogue = discovery.NewCatalogue(c.deps.Discovery, c.deps.Clock, deletable)
	c.triggers = newTriggers(c.deps.Metadata, c.deps.Clock, c.onTrigger)
	c.silence = newSilence(c.deps.Clock)
	c.memories = map[string]*memory{}
}

// resync queues every Terminating namespace now and then until ctx ends.
func (c *Controller) resync(ctx context.Context) {
	if c.cfg.SyncPeriod == 0 {
		return
	}
	ticker := c.deps.Clock.NewTicker(c.cfg.SyncPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			for _, name := range c.terminating() {
				c.loop.Add(name)
			}
		}
	}
}

// Healthy fails while a sync is stuck.
func (c *Controller) Healthy() error { return c.loop.Healthy() }
