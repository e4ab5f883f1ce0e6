package kcmtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // has the metrics of queues
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

// TestMetricsOfTheHostAreItsOwn: client-go has one registration for metrics of clients and queues; it belongs to the
// host, such as controller-runtime.
func TestMetricsOfTheHostAreItsOwn(t *testing.T) {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "host"})
	defer queue.ShutDown()
	client := cluster.Client(t)
	namespace := newNamespace(t)
	before := series(t)
	for _, want := range []string{`workqueue_depth`, `rest_client_requests_total`} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(s string) bool { return strings.HasPrefix(s, "host "+want) }) {
			t.Errorf("%s is not in the registry of controller-runtime", want)
		}
	}
	kcmtest.Start(t, cluster.Config(), kcmtest.PodsReady())
	cluster.Create(t, controlplane.Deployment(namespace, "web", 3))
	hasPods(t, client, namespace, 3, controlplane.IsPodReady)
	deleteNamespace(t, client, namespace)
	for s := range series(t) {
		if _, was := before[s]; !was && !countsRequests(s) {
			t.Errorf("%s is new", s)
		}
	}
}

func countsRequests(series string) bool { return strings.HasPrefix(series, "host rest_client_") }

// series are all that a program with controller-runtime shows.
func series(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for name, registry := range map[string]prometheus.Gatherer{
		"host": metrics.Registry, "default": prometheus.DefaultGatherer, "legacy": legacyregistry.DefaultGatherer,
	} {
		families, err := registry.Gather()
		controlplane.Must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				text := name + " " + f.GetName()
				for _, l := range m.GetLabel() {
					text += " " + l.GetName() + "=" + l.GetValue()
				}
				all[text] = true
			}
		}
	}
	return all
}
