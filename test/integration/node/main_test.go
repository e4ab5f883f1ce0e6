// Package node tests the node lifecycle controller, and where a case needs it the taint eviction controller, on a real API server:
// upstream's integration cases with their timings, and what must hold when the API server goes away, a watch freezes or the
// process dies.
package node

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
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

// scaled is the defaults with time running faster, for nodes that renew every half second. A machine that stands still for some seconds condemns
// none of them.
func scaled() node.Config {
	cfg := defaults()
	cfg.MonitorPeriod, cfg.MonitorGracePeriod, cfg.StartupGracePeriod = 500*time.Millisecond, 8*time.Second, 9*time.Second
	return cfg
}

const renewEvery = 500 * time.Millisecond

// controllerConfig has the rights of deploy/rbac for these controllers alone, so that the tests also show that they are enough.
func controllerConfig() *rest.Config {
	return cluster.ManagerConfig("node-controller", node.Name, tainteviction.Name)
}

func watcherConfig() *rest.Config { return controllerConfig() }

// loops is the controllers under test with caches of their own.
type loops struct{ *controlplane.Loop }

// unhealthy is how many nodes of a zone the controller holds for not Ready.
func (l *loops) unhealthy(t testing.TB, zone string) int {
	t.Helper()
	families, err := l.Metrics.Gather()
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
	unlimited := rest.CopyConfig(cfg)
	unlimited.QPS = -1
	return &loops{controlplane.Standby(t, controlplane.LoopOptions{
		Config: cfg, Watch: watch,
		Events: cluster.Config(), // around the proxies: losing events is allowed
		Caches: caches.Config{LeaseNamespaces: []string{corev1.NamespaceNodeLease}},
	}, func(b controlplane.LoopBase) ([]controlplane.RunFunc, error) {
		nodes, err1 := b.Caches.Nodes()
		pods, err2 := b.Caches.Pods()
		leases, err3 := b.Caches.Leases()
		lifecycle, err4 := node.New(config, node.Deps{
			Client: b.Client, Reads: controlplane.ClientFor(t, unlimited), Metadata: controlplane.MetadataFor(t, unlimited), Nodes: nodes, Pods: pods, Leases: leases,
			Clock: clock.RealClock{}, Metrics: b.Metrics, Recorder: b.Recorder("node-controller"),
		})
		if err := errors.Join(err1, err2, err3, err4); err != nil || !eviction {
			return []controlplane.RunFunc{lifecycle.Run}, err
		}
		evict, err := tainteviction.New(tainteviction.Config{Workers: 8, TrustWindow: min(config.MonitorGracePeriod, 5*time.Second), Drain: 5 * time.Second}, tainteviction.Deps{
			Client: b.Client, Nodes: nodes, Pods: pods, Clock: clock.RealClock{}, Metrics: b.Metrics, Recorder: b.Recorder(tainteviction.Name),
		})
		return []controlplane.RunFunc{lifecycle.Run, evict.Run}, err
	})}
}

func (l *loops) beginTerm() *loops {
	l.BeginTerm()
	return l
}

// start runs the controllers with nothing between them and the API server.
func start(t testing.TB, config node.Config, eviction bool) *loops {
	t.Helper()
	return standby(t, config, eviction, controllerConfig(), watcherConfig()).beginTerm()
}
