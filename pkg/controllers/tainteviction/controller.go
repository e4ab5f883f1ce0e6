package tainteviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/worker"
)

// Name is the controller's canonical name and the component of its events.
const Name = "taint-eviction-controller"

// shareLiveReads is how long one live look at a node serves the evictions of its pods.
const shareLiveReads = time.Second

// Config of the controller.
type Config struct {
	// Workers is how many pods, and how many nodes, are worked on at once. At least 1; upstream has 8 for deciding and no limit for
	// deleting.
	Workers int
	// SettleWindow is how long a new term waits before it evicts for the taints of node health: the time a node may be silent
	// (--node-monitor-grace-period). Zero does not wait.
	SettleWindow time.Duration
	// Drain is how long evictions that are under way may go on after the end of a term; zero until they end.
	Drain time.Duration
}

// Deps are what the controller works with.
type Deps struct {
	Client   kubernetes.Interface // fenced
	Pods     *caches.Pods
	Nodes    *caches.Nodes
	Recorder record.EventRecorder // component Name
	Clock    clock.WithTicker
	Metrics  prometheus.Registerer
}

// Controller evicts pods from nodes with NoExecute taints.
type Controller struct {
	cfg      Config
	client   kubernetes.Interface
	pods     *caches.Pods
	nodes    *caches.Nodes
	recorder record.EventRecorder
	clock    clock.WithTicker
	metrics  *metrics

	taints   *sightings
	nodeLoop *worker.Loop[string]
	podLoop  *worker.Loop[podKey]
	term     *term // replaced between terms, when no worker runs
}

// podKey names one pod for good; a pod of the same name that comes later has another key.
type podKey struct {
	Name cache.ObjectName
	UID  types.UID
}

func (k podKey) String() string { return k.Name.String() + "/" + string(k.UID) }

func keyOf(pod *caches.Pod) podKey {
	return podKey{Name: cache.MetaObjectToName(pod), UID: pod.UID}
}

// term is the knowledge that ends with a term.
type term struct {
	ledger   *ledger
	settling *settling
	live     *live.Reads[nodeState]
}

// New registers the controller's handlers with the caches, which must not have been started.
func New(cfg Config, deps Deps) (*Controller, error) {
	if cfg.Workers < 1 || cfg.SettleWindow < 0 || cfg.Drain < 0 {
		return nil, fmt.Errorf("%s: invalid configuration %+v", Name, cfg)
	}
	c := &Controller{
		cfg: cfg, client: deps.Client, pods: deps.Pods, nodes: deps.Nodes, recorder: deps.Recorder, clock: deps.Clock,
		metrics: newMetrics(deps.Metrics), taints: newSightings(),
	}
	// The queues' names are those of upstream's queues.
	loop := worker.Config{Controller: Name, Queue: "noexec_taint_node", Workers: cfg.Workers, Drain: cfg.Drain, Clock: deps.Clock}
	c.nodeLoop = worker.New(loop, deps.Metrics, c.reconcileNode)
	loop.Queue = "noexec_taint_pod"
	c.podLoop = worker.NewByDeadline(loop, deps.Metrics, func(key podKey) time.Time { return c.term.ledger.turn(key.UID) }, c.reconcilePod)
	if err := errors.Join(c.handleNodes(), c.handlePods()); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return c, nil
}

func (c *Controller) handleNodes() error {
	changed := func(node *corev1.Node) {
		c.taints.observe(node, c.clock.Now())
		c.nodeLoop.Add(node.Name)
	}
	return c.nodes.Handle(caches.Handler[*corev1.Node]{
		Add: changed,
		Update: func(old, node *corev1.Node) {
			if old.UID != node.UID {
				c.taints.forget(old.Name)
			}
			if old.UID != node.UID || !sameForPods(old, node) {
				changed(node)
			}
		},
		Delete: func(node *corev1.Node) {
			c.taints.forget(node.Name)
			c.nodeLoop.Add(node.Name)
		},
	})
}

func (c *Controller) handlePods() error {
	changed := func(pod *caches.Pod) {
		if pod.NodeName != "" {
			c.podLoop.Add(keyOf(pod))
		}
	}
	return c.pods.Handle(caches.Handler[*caches.Pod]{
		Add: changed,
		Update: func(old, pod *caches.Pod) {
			if old.UID != pod.UID {
				changed(old) // replaced by another of its name while the watch was away
			}
			if concernsUs(old, pod) {
				changed(pod)
			}
		},
		Delete: changed,
	})
}

// concernsUs reports whether a pod changed in a way that moves its deadline, ends it or needs to be undone.
func concernsUs(old, pod *caches.Pod) bool {
	return old.UID != pod.UID || old.NodeName != pod.NodeName ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || marked(old) != marked(pod) ||
		!slices.EqualFunc(old.Tolerations, pod.Tolerations, sameToleration)
}

func sameToleration(a, b corev1.Toleration) bool {
	x, y := a.TolerationSeconds, b.TolerationSeconds
	a.TolerationSeconds, b.TolerationSeconds = nil, nil
	return a == b && (x == nil) == (y == nil) && (x == nil || *x == *y)
}

// Run works for one term and returns nil when ctx has ended and everything it started has.
func (c *Controller) Run(ctx context.Context) error {
	c.term = &term{
		ledger:   newLedger(c.metrics.pending),
		settling: newSettling(c.clock.Now(), c.cfg.SettleWindow),
		live:     live.NewReads(c.clock, shareLiveReads, c.look),
	}
	defer c.metrics.pending.Set(0)
	var loops sync.WaitGroup
	ready := make(chan struct{})
	loops.Go(func() {
		c.podLoop.Run(ctx, func() []podKey {
			close(ready) // the pods' queue exists: nodes may fill it
			return c.leftMarked()
		})
	})
	<-ready
	c.nodeLoop.Run(ctx, c.tainted)
	loops.Wait()
	return nil
}

// tainted names the nodes that may have pods to evict.
func (c *Controller) tainted() []string {
	var names []string
	for _, node := range c.nodes.List() {
		if len(noExecute(node.Spec.Taints)) > 0 {
			names = append(names, node.Name)
		}
	}
	return names
}

// leftMarked are the pods for which an eviction was begun, maybe by a manager that has since died, and may have been called off.
func (c *Controller) leftMarked() []podKey {
	var keys []podKey
	for _, pod := range c.pods.List() {
		if marked(pod) {
			keys = append(keys, keyOf(pod))
		}
	}
	return keys
}

// Healthy fails when a sync has been running for too long.
func (c *Controller) Healthy() error {
	return errors.Join(c.nodeLoop.Healthy(), c.podLoop.Healthy())
}
