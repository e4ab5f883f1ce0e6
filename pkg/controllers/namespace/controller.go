package namespace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
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
	// minBackoff replaces client-go's 5 ms, which would lead to ten passes in two seconds.
	minBackoff = 100 * time.Millisecond
	// slowAfter is for passes over every type. More namespaces than workers are worked on only if some passes
	// take longer.
	slowAfter = 10 * time.Second
)

// Deps are the dependencies of the controller.
type Deps struct {
	Client     kubernetes.Interface // fenced
	Metadata   metadata.Interface   // fenced; preferably from NewMetadataClient
	Discovery  discovery.Client     // uncached, of the fenced config
	Namespaces *caches.Namespaces
	Pods       *caches.Pods // only triggers syncs: no decision is based on cached pods
	Clock      clock.WithTicker
	Metrics    prometheus.Registerer
}

// Controller deletes the content of terminating namespaces and finalizes them.
type Controller struct {
	cfg       Config
	deps      Deps
	loop      *controller.Loop[string]
	metrics   *metrics
	slots     *semaphore.Weighted
	deletions sync.Map // time of the first sight of each deletion, by UID

	// Of the current term; set by beginTerm before any sync.
	catalogue    *discovery.Catalogue
	unresponsive *unresponsive
	states       *controller.KeyStates[string, state]
}

// New returns a controller and registers its handlers. It sends no request.
func New(cfg Config, deps Deps) (*Controller, error) {
	c := &Controller{cfg: cfg, deps: deps, metrics: newMetrics(deps.Metrics), slots: semaphore.NewWeighted(requestsAtOnce)}
	c.loop = controller.NewLoop(controller.LoopConfig{
		Controller: Name, Queue: "namespace", Workers: cfg.Workers, MinBackoff: minBackoff, SlowAfter: slowAfter, Drain: cfg.Drain, Clock: deps.Clock,
	}, deps.Metrics, c.reconcile)
	if err := deps.Namespaces.Handle(caches.Handler[*corev1.Namespace]{
		Add:    c.onAdd,
		Update: c.onUpdate,
		Delete: func(gone *corev1.Namespace) { c.deletions.Delete(gone.UID) },
	}); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	if err := deps.Pods.Handle(caches.Handler[*caches.Pod]{Delete: c.onPodDelete}); err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	return c, nil
}

func (c *Controller) onAdd(ns *corev1.Namespace) {
	if ns.DeletionTimestamp != nil {
		c.firstSeen(ns.UID, c.deps.Clock.Now())
		c.loop.Add(ns.Name)
	}
}

// onUpdate ignores irrelevant changes such as those of our own conditions.
func (c *Controller) onUpdate(before, ns *corev1.Namespace) {
	if before.UID != ns.UID {
		c.deletions.Delete(before.UID)
	}
	if ns.DeletionTimestamp == nil {
		return
	}
	c.firstSeen(ns.UID, c.deps.Clock.Now())
	if before.UID != ns.UID || before.DeletionTimestamp == nil || !slices.Equal(before.Spec.Finalizers, ns.Spec.Finalizers) {
		c.loop.Add(ns.Name)
	}
}

// onPodDelete queues a terminating namespace when its last pod is gone. It takes constant time.
func (c *Controller) onPodDelete(pod *caches.Pod) {
	ns, ok := c.deps.Namespaces.Get(cache.NewObjectName("", pod.Namespace))
	if ok && ns.DeletionTimestamp != nil && c.deps.Pods.CountInNamespace(pod.Namespace) == 0 {
		c.loop.Add(pod.Namespace)
	}
}

// terminating returns the names of the terminating namespaces in the cache.
func (c *Controller) terminating() []string {
	var names []string
	for _, ns := range c.deps.Namespaces.List() {
		if ns.DeletionTimestamp != nil {
			names = append(names, ns.Name)
		}
	}
	return names
}

// Run works for one term, see [controller.Loop]. It always returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.beginTerm()
	c.loop.Run(ctx, c.terminating)
	c.metrics.reset()
	return nil
}

func (c *Controller) beginTerm() {
	deletable := func(api metav1.APIResource) bool { return api.Namespaced && slices.Contains(api.Verbs, "delete") }
	c.catalogue = discovery.NewCatalogue(c.deps.Discovery, c.deps.Clock, deletable)
	c.unresponsive = &unresponsive{clock: c.deps.Clock, pauses: map[schema.GroupVersion]apiPause{}}
	c.states = controller.NewKeyStates[string](func() *state { return &state{timeouts: map[schema.GroupResource]int{}} })
}

// Healthy fails while a sync is stuck.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

// firstSeen returns the time at which this process first saw the deletion of a namespace. The default is now. Handlers
// record deletions on a standby, too, so a new leader does not wait for the grace period again.
func (c *Controller) firstSeen(uid types.UID, now time.Time) time.Time {
	seen, _ := c.deletions.LoadOrStore(uid, now)
	return seen.(time.Time)
}
