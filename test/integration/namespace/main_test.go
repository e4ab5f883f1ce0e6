// Package namespace_test runs the namespace controller against a real API server.
package namespace_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/namespace"
	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{})
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true, SecondAPIServer: true}, func(c *controlplane.Cluster) { cluster = c }))
}

type manager struct {
	*controlplane.Loop
	agent string // user agent in the audit log
}

type setup struct {
	cfg   namespace.Config
	clock clock.WithTicker
}

func start(t testing.TB, edits ...func(*setup)) *manager {
	t.Helper()
	s := setup{cfg: namespace.Config{Workers: 10, SyncPeriod: 5 * time.Minute}}
	for _, edit := range edits {
		edit(&s)
	}
	agent := "namespace-test-" + rand.String(8)
	cfg := scoped(t, cluster.ManagerConfig("namespace-controller", namespace.Name))
	cfg.UserAgent = agent
	cfg.QPS = -1
	return &manager{agent: agent, Loop: controlplane.StartLoop(t, controlplane.LoopOptions{
		Config: cfg, Watch: withAgent(cfg, "caches-"+agent), Events: withAgent(cfg, "events-"+agent), Caches: caches.Config{Name: agent}, Clock: s.clock,
	}, namespace.Registration(&s.cfg))}
}

func withAgent(cfg *rest.Config, agent string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = agent
	return cfg
}

// scopeOf is the scope of controllers and namespaces that a test makes, see [controlplane.Scope].
func scopeOf(t testing.TB) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return fmt.Sprintf("%x", h.Sum64())
}

func scoped(t testing.TB, cfg *rest.Config) *rest.Config {
	return controlplane.Scope(cfg, scopeOf(t), "namespaces")
}

func create(t testing.TB) string {
	t.Helper()
	ns := named(t, "test-"+rand.String(8))
	cluster.Create(t, ns)
	return ns.Name
}

// named returns a namespace in the scope of the test.
func named(t testing.TB, name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{controlplane.ScopeLabel: scopeOf(t)}}}
}

func remove(t testing.TB, name string) {
	t.Helper()
	controlplane.Must(t, cluster.Client(t).CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// gone waits until the namespace is gone.
func gone(t testing.TB, name string, within time.Duration) {
	t.Helper()
	controlplane.Eventually(t, within, func(ctx context.Context) error { return isGone(ctx, cluster.Client(t), name) })
}
