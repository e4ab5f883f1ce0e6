package namespace

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/discovery"
)

const (
	// Name is the controller's name in --controllers, and in logs.
	Name = "namespace-controller"

	// minBackoff replaces client-go's 5 ms, which would lead to ten passes in two seconds.
	minBackoff = 100 * time.Millisecond
	// slowAfter exceeds the usual time of a pass over every type. A longer pass gives its worker to another
	// namespace.
	slowAfter = 10 * time.Second
)

// Controller deletes the content of terminating namespaces and finalizes them.
type Controller struct {
	controller.Base
	cfg        Config
	metadata   metadata.Interface
	discovery  discovery.Client
	namespaces *caches.Namespaces
	pods       *caches.Pods // only triggers syncs: no decision is based on cached pods
	loop       *controller.Loop[string]
	metrics    *metrics
	slots      *semaphore.Weighted
	deletions  sync.Map // time of the first sight of each deletion, by UID

	// Of the current term; set by beginTerm before any sync.
	catalogue    *discovery.Catalogue
	unresponsive *unresponsive
	states       *controller.KeyStates[string, state]
}

// newController returns a controller. Both clients are fenced, and discovery is not cached.
func newController(cfg Config, b controller.Base, metadata metadata.Interface, discovery discovery.Client) (*Controller, error) {
	c := &Controller{Base: b, cfg: cfg, metadata: metadata, discovery: discovery,
		metrics: newMetrics(b.Metrics), slots: semaphore.NewWeighted(requestsAtOnce)}
	c.loop = controller.NewLoop(controller.LoopConfig{Controller: Name, Queue: "namespace", Workers: cfg.Workers,
		MinBackoff: minBackoff, SlowAfter: slowAfter, Drain: b.Drain, Clock: b.Clock}, b.Metrics, c.reconcile)
	if err := errors.Join(caches.Request(&c.namespaces, b.Caches.Namespaces), caches.Request(&c.pods, b.Caches.Pods)); err != nil {
		return nil, err
	}
	return c, errors.Join(
		c.namespaces.Handle(caches.Handler[*corev1.Namespace]{
			Add:    func(ns *corev1.Namespace) { c.onUpdate(&corev1.Namespace{}, ns) },
			Update: c.onUpdate,
			Delete: func(gone *corev1.Namespace) { c.deletions.Delete(gone.UID) },
		}),
		c.pods.Handle(caches.Handler[*caches.Pod]{Delete: c.onPodDelete}),
	)
}

// onUpdate ignores irrelevant changes such as those of our own conditions. before is empty for a new namespace.
func (c *Controller) onUpdate(before, ns *corev1.Namespace) {
	if before.UID != ns.UID {
		c.deletions.Delete(before.UID)
	}
	if ns.DeletionTimestamp == nil {
		return
	}
	c.firstSeen(ns.UID, c.Clock.Now())
	if before.UID != ns.UID || before.DeletionTimestamp == nil || !slices.Equal(before.Spec.Finalizers, ns.Spec.Finalizers) {
		c.loop.Add(ns.Name)
	}
}

// onPodDelete queues a terminating namespace when its last pod is gone. It takes constant time.
func (c *Controller) onPodDelete(pod *caches.Pod) {
	if c.namespaces.Terminating(pod.Namespace) && c.pods.CountInNamespace(pod.Namespace) == 0 {
		c.loop.Add(pod.Namespace)
	}
}

// terminating returns the names of the terminating namespaces in the cache.
func (c *Controller) terminating() []string {
	var names []string
	for _, ns := range c.namespaces.List() {
		if ns.DeletionTimestamp != nil {
			names = append(names, ns.Name)
		}
	}
	return names
}

// Run implements controller.Controller. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.beginTerm()
	c.loop.Run(ctx, c.terminating)
	c.metrics.blocked.Reset()
	return nil
}

func (c *Controller) beginTerm() {
	deletable := func(api metav1.APIResource) bool { return api.Namespaced && slices.Contains(api.Verbs, "delete") }
	c.catalogue = discovery.NewCatalogue(c.discovery, c.Clock, deletable)
	c.unresponsive = &unresponsive{clock: c.Clock, pauses: map[schema.GroupVersion]apiPause{}}
	c.states = controller.NewKeyStates[string](func() *state { return &state{timeouts: map[schema.GroupResource]int{}} })
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

// firstSeen returns the time at which this process first saw the deletion of a namespace. The default is now. Handlers
// record deletions on a standby, too, so a new leader does not wait for the grace period again.
func (c *Controller) firstSeen(uid types.UID, now time.Time) time.Time {
	seen, _ := c.deletions.LoadOrStore(uid, now)
	return seen.(time.Time)
}
