// Package node tests the node lifecycle controller, and where a case needs it the taint eviction controller, on a real API server:
// upstream's integration cases with their timings, and what must hold when the API server goes away, a watch freezes or the
// process dies.
package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	options := controlplane.Options{Audit: true, APIServerArgs: map[string][]string{
		"enable-admission-plugins": {"PodTolerationRestriction"},
		"feature-gates":            {"TaintTolerationComparisonOperators=true"},
	}}
	os.Exit(controlplane.Run(m, options, func(c *controlplane.Cluster) { cluster = c }))
}

// defaults is what the daemon runs with.
func defaults() node.Config {
	return node.Config{
		MonitorPeriod: 5 * time.Second, MonitorGracePeriod: 50 * time.Second, StartupGracePeriod: time.Minute,
		EvictionRate: 0.1, SecondaryEvictionRate: 0.01, LargeClusterSizeThreshold: 50, UnhealthyZoneThreshold: 0.55,
		Workers: 32, PodWorkers: 32, Drain: 5 * time.Second,
	}
}

// scaled is the defaults with time running ten times as fast and more, for nodes that renew every half second.
func scaled() node.Config {
	cfg := defaults()
	cfg.MonitorPeriod, cfg.MonitorGracePeriod, cfg.StartupGracePeriod = 500*time.Millisecond, 4*time.Second, 5*time.Second
	return cfg
}

const renewEvery = 500 * time.Millisecond

// controllerConfig has the rights of deploy/rbac for these controllers alone, so that the tests also show that they are enough.
func controllerConfig() *rest.Config {
	return cluster.ManagerConfig("node-controller", node.Name, tainteviction.Name)
}

func watcherConfig() *rest.Config { return controllerConfig() }

// loops is the controllers under test with caches of their own.
type loops struct {
	ctx     context.Context
	runs    []func(context.Context) error
	end     func() // of the term; nil outside
	metrics prometheus.Gatherer
}

// unhealthy is how many nodes of a zone the controller holds for not Ready.
func (l *loops) unhealthy(t testing.TB, zone string) int {
	t.Helper()
	families, err := l.metrics.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "node_collector_unhealthy_nodes_in_zone" && strings.Contains(m.GetLabel()[0].GetValue(), zone) {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	return 0
}

// standby builds the controllers on cfg, with caches that watch through watch. They end with the test.
func standby(t testing.TB, config node.Config, eviction bool, cfg, watch *rest.Config) *loops {
	t.Helper()
	client := controlplane.ClientFor(t, cfg)
	store := caches.New(controlplane.ClientFor(t, watch), caches.Config{Name: t.Name(), LeaseNamespaces: []string{corev1.NamespaceNodeLease}})
	nodes, err := store.Nodes()
	must(t, err)
	pods, err := store.Pods()
	must(t, err)
	leases, err := store.Leases()
	must(t, err)
	events := record.NewBroadcaster()
	// Events go around the proxies: losing them is allowed.
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: cluster.Client(t).CoreV1().Events("")})
	registry := prometheus.NewRegistry()
	l := &loops{metrics: registry}
	lifecycle, err := node.New(config, node.Deps{
		Client: client, Nodes: nodes, Pods: pods, Leases: leases, Clock: clock.RealClock{}, Metrics: registry,
		Recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "node-controller"}),
	})
	must(t, err)
	l.runs = append(l.runs, lifecycle.Run)
	if eviction {
		evict, err := tainteviction.New(tainteviction.Config{Workers: 8, SettleWindow: config.MonitorGracePeriod, Drain: 5 * time.Second}, tainteviction.Deps{
			Client: client, Nodes: nodes, Pods: pods, Clock: clock.RealClock{}, Metrics: registry,
			Recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: tainteviction.Name}),
		})
		must(t, err)
		l.runs = append(l.runs, evict.Run)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.ctx = ctx
	store.Start(ctx)
	t.Cleanup(func() {
		l.endTerm()
		cancel()
		store.Shutdown()
		events.Shutdown()
	})
	must(t, store.WaitForSync(ctx))
	return l
}

func (l *loops) beginTerm() *loops {
	ctx, cancel := context.WithCancel(l.ctx)
	var running sync.WaitGroup
	for _, run := range l.runs {
		running.Go(func() { _ = run(ctx) })
	}
	l.end = func() {
		cancel()
		running.Wait()
	}
	return l
}

// endTerm waits until the controllers have stopped; the caches go on.
func (l *loops) endTerm() {
	if l.end != nil {
		l.end()
		l.end = nil
	}
}

// start runs the controllers with nothing between them and the API server.
func start(t testing.TB, config node.Config, eviction bool) *loops {
	t.Helper()
	return standby(t, config, eviction, controllerConfig(), watcherConfig()).beginTerm()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is what tests do to nodes. Nodes and Leases made through it go with the test.
type world struct {
	t      testing.TB
	client kubernetes.Interface
}

func newWorld(t testing.TB) *world { return &world{t, cluster.Client(t)} }

// create makes a node with its status as given, as a kubelet that registers does.
func (w *world) create(n *corev1.Node) {
	w.t.Helper()
	_, err := w.client.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{})
	must(w.t, err)
	w.t.Cleanup(func() {
		err := w.client.CoreV1().Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Errorf("delete node: %v", err)
		}
	})
}

// conditions makes node conditions from pairs of type and status.
func conditions(pairs ...string) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, corev1.NodeCondition{Type: corev1.NodeConditionType(pairs[i]), Status: corev1.ConditionStatus(pairs[i+1])})
	}
	return out
}

// fleet is nodes with Leases and kubelets that renew them until told to stop.
type fleet struct {
	world *world
	names []string
	zone  string

	lock    sync.Mutex
	silent  map[string]bool
	stopped chan struct{}
	done    sync.WaitGroup
}

// newFleet makes n Ready nodes in a zone.
func (w *world) newFleet(zone string, n int) *fleet {
	w.t.Helper()
	f := &fleet{world: w, zone: zone, silent: map[string]bool{}, stopped: make(chan struct{})}
	leases := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for i := range n {
		name := fmt.Sprintf("%s-%d", zone, i)
		f.names = append(f.names, name)
		w.create(controlplane.Node(name, func(n *corev1.Node) {
			n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelTopologyRegion] = zone, "region"
			n.Status.Conditions = conditions("Ready", "True")
		}))
		_, err := leases.Create(w.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Now()}},
		}, metav1.CreateOptions{})
		must(w.t, err)
		w.t.Cleanup(func() { _ = leases.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	f.done.Go(f.renew)
	w.t.Cleanup(func() {
		close(f.stopped)
		f.done.Wait()
	})
	return f
}

// renew plays all kubelets of the fleet, some at a time.
func (f *fleet) renew() {
	const atOnce = 10
	var kubelets sync.WaitGroup
	for first := range min(atOnce, len(f.names)) {
		kubelets.Go(func() {
			ticker := time.NewTicker(renewEvery)
			defer ticker.Stop()
			for {
				for i := first; i < len(f.names); i += atOnce {
					f.renewOne(f.names[i])
				}
				select {
				case <-ticker.C:
				case <-f.stopped:
					return
				}
			}
		})
	}
	kubelets.Wait()
}

// fallSilent stops all kubelets of the fleet together: their last renewals are within a second, however slow the machine is.
func (f *fleet) fallSilent() {
	f.world.t.Helper()
	f.silence(true, f.names...)
	controlplane.Eventually(f.world.t, patience, func(context.Context) error {
		begin := time.Now()
		var kubelets sync.WaitGroup
		for _, name := range f.names {
			kubelets.Go(func() { f.renewNow(name) })
		}
		kubelets.Wait()
		if took := time.Since(begin); took > time.Second {
			return fmt.Errorf("a round of renewals takes %v", took)
		}
		return nil
	})
}

func (f *fleet) renewOne(name string) {
	if !f.isSilent(name) {
		f.renewNow(name)
	}
}

func (f *fleet) renewNow(name string) {
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := f.world.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).
		Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		f.world.t.Logf("renew %s: %v", name, err)
	}
}

func (f *fleet) isSilent(name string) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.silent[name]
}

// silence stops the kubelets of nodes, or starts them again.
func (f *fleet) silence(silent bool, names ...string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, name := range names {
		f.silent[name] = silent
	}
}

// pods makes pods on a node that are Running and Ready.
func (w *world) pods(namespace, on string, n int) []string {
	w.t.Helper()
	var names []string
	for i := range n {
		name := fmt.Sprintf("%s-pod-%d", on, i)
		_, err := w.client.CoreV1().Pods(namespace).Create(w.t.Context(),
			controlplane.Pod(namespace, name, nil, func(p *corev1.Pod) { p.Spec.NodeName = on }), metav1.CreateOptions{})
		must(w.t, err)
		controlplane.MarkPodReady(w.t, w.client, namespace, name)
		names = append(names, name)
	}
	return names
}

// list reads all nodes at one moment.
func (w *world) list(ctx context.Context) ([]corev1.Node, error) {
	list, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func readiness(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// unknown names the nodes of a list that are Unknown.
func unknown(nodes []corev1.Node) (names []string) {
	for i := range nodes {
		if readiness(&nodes[i]) == corev1.ConditionUnknown {
			names = append(names, nodes[i].Name)
		}
	}
	return names
}

// noExecute names the nodes of a list, with a prefix, that have the unreachable:NoExecute taint.
func noExecute(nodes []corev1.Node, prefix string) (names []string) {
	for _, n := range nodes {
		if strings.HasPrefix(n.Name, prefix) && hasTaint(&n, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}) {
			names = append(names, n.Name)
		}
	}
	return names
}

// hasTaint compares key, value and effect.
func hasTaint(n *corev1.Node, want corev1.Taint) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == want.Key && t.Effect == want.Effect && t.Value == want.Value
	})
}

// taints waits until a node has all the taints.
func (w *world) taints(name string, want ...corev1.Taint) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, t := range want {
			if !hasTaint(n, t) {
				return fmt.Errorf("node %s has taints %v, want %v", name, n.Spec.Taints, t)
			}
		}
		return nil
	})
}

// notReady waits until every pod is not Ready.
func (w *world) notReady(namespace string, names ...string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		for _, name := range names {
			pod, err := w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := caches.TrimPod(pod).Ready.Status; got != corev1.ConditionFalse {
				return fmt.Errorf("pod %s: Ready = %s, want False", name, got)
			}
		}
		return nil
	})
}
