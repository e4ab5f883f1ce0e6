// Package node tests the node lifecycle controller, and where a case needs it the taint eviction controller, on a real API server:
// upstream's integration cases with their timings, and what must hold when the API server goes away, a watch freezes or the
// process dies.
package node

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
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

// counter is a counter with the one label value.
func (l *loops) counter(t testing.TB, name, value string) float64 {
	t.Helper()
	families, err := l.metrics.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == value {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// standby builds the controllers on cfg, with caches that watch through watch. They end with the test.
func standby(t testing.TB, config node.Config, eviction bool, cfg, watch *rest.Config) *loops {
	t.Helper()
	client := controlplane.ClientFor(t, cfg)
	unlimited := rest.CopyConfig(cfg)
	unlimited.QPS = -1
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
		Client: client, Reads: controlplane.ClientFor(t, unlimited), Metadata: controlplane.MetadataFor(t, unlimited), Nodes: nodes, Pods: pods, Leases: leases, Clock: clock.RealClock{}, Metrics: registry,
		Recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "node-controller"}),
	})
	must(t, err)
	l.runs = append(l.runs, lifecycle.Run)
	if eviction {
		evict, err := tainteviction.New(tainteviction.Config{Workers: 8, TrustWindow: config.MonitorGracePeriod, Drain: 5 * time.Second}, tainteviction.Deps{
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
