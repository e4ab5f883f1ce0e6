// Package node tests the controllers of nodes and of pods on lost nodes (node lifecycle, taint eviction, pod garbage
// collector) on a real API server: outages, slow admission and the death of the process.
//
// All tests run in parallel. The controllers of a test see only objects of the test, see [controlplane.Scope].
package node

import (
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// scaled is the default configuration with shorter times, for nodes that renew every half second. A pause of the
// machine of some seconds does not make a node Unknown.
func scaled() node.Config {
	cfg := *node.DefaultConfig()
	cfg.MonitorPeriod, cfg.MonitorGracePeriod, cfg.StartupGracePeriod = 500*time.Millisecond, 8*time.Second, 9*time.Second
	return cfg
}

const renewEvery = 500 * time.Millisecond

func (w *world) config(controller string) *rest.Config {
	return controlplane.Scope(cluster.ManagerConfig("node-"+w.scope, controller), w.scope, "nodes", "pods", "leases")
}

func (w *world) start(config node.Config, cfg, watch *rest.Config, name string) {
	w.t.Helper()
	grace := min(config.MonitorGracePeriod, 5*time.Second)
	all := []controller.Registration{
		node.Registration(&config), tainteviction.Registration(&grace),
		podgc.Registration(&podgc.Config{Quarantine: time.Second, Period: 500 * time.Millisecond}),
	}
	controlplane.StartLoop(w.t, controlplane.LoopOptions{
		Config: cfg, Watch: watch,
		Events: cluster.Config(), // around the proxies: losing events is allowed
		Caches: caches.Config{LeaseNamespaces: []string{corev1.NamespaceNodeLease}},
	}, slices.DeleteFunc(all, func(r controller.Registration) bool { return r.Name != name })...)
}
