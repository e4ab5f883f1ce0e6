// Package namespace_test runs the namespace controller against a real API server.
package namespace_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/namespace"
	"minikcm/test/controlplane"
)

// One cluster for all tests, with a second API server that only the test of the race between two of them writes through.
var cluster *controlplane.Cluster

var logs = flag.Bool("logs", false, "show what the controller logs")

func TestMain(m *testing.M) {
	flag.Parse()
	if !*logs {
		klog.SetLogger(klog.Logger{})
	}
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true, SecondAPIServer: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// manager runs the controller and its caches, and nothing else.
type manager struct {
	agent   string // user agent, by which the audit log knows it
	metrics *prometheus.Registry
	lead    func() // begins the term; done by start unless it is to be a standby
	stop    func()
}

type setup struct {
	cfg        namespace.Config
	rest       *rest.Config // of the controller
	watch      *rest.Config // of the caches and events; nil: the same
	transport  func(http.RoundTripper) http.RoundTripper
	clock      clock.WithTicker
	standby    bool // sees, and does not work before manager.lead
	apiServers func() int
}

// start runs a controller until the test ends. Grace is zero unless an edit changes it.
//
// Every controller sees all namespaces of the cluster. Tests that count requests or need a namespace to stay are therefore
// not parallel, and no controller is left running between tests.
func start(t testing.TB, edits ...func(*setup)) *manager {
	t.Helper()
	s := setup{cfg: namespace.Config{Workers: 10, SyncPeriod: 5 * time.Minute}, rest: cluster.ManagerConfig("namespace-controller", namespace.Name), clock: clock.RealClock{}}
	for _, edit := range edits {
		edit(&s)
	}
	if s.watch == nil {
		s.watch = s.rest
	}
	m := &manager{agent: "namespace-test-" + rand.String(8), metrics: prometheus.NewRegistry()}
	cfg := rest.CopyConfig(s.rest)
	cfg.UserAgent = m.agent
	cfg.QPS = -1
	watching := controlplane.ClientFor(t, withAgent(s.watch, "caches-"+m.agent))
	if s.transport != nil {
		cfg.Wrap(s.transport)
	}
	known := caches.New(watching, caches.Config{Name: m.agent})
	namespaces, err := known.Namespaces()
	check(t, err)
	pods, err := known.Pods()
	check(t, err)
	metadata, err := namespace.NewMetadataClient(cfg)
	check(t, err)
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&eventSink{controlplane.ClientFor(t, withAgent(s.watch, "events-"+m.agent))})
	c, err := namespace.New(s.cfg, namespace.Deps{
		Client: controlplane.ClientFor(t, cfg), Metadata: metadata, Discovery: disco, Namespaces: namespaces, Pods: pods,
		APIServers: s.apiServers, Recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: namespace.Name}),
		Clock: s.clock, Metrics: m.metrics,
	})
	check(t, err)
	known.Start(ctx)
	check(t, known.WaitForSync(ctx))
	var done chan error
	m.lead = func() {
		done = make(chan error)
		go func() { done <- c.Run(ctx) }()
	}
	if !s.standby {
		m.lead()
	}
	stopped := false
	m.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if done == nil {
			m.lead() // to no effect
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("controller does not stop")
		}
		known.Shutdown()
		broadcaster.Shutdown()
	}
	t.Cleanup(m.stop)
	return m
}

func grace(d time.Duration) func(*setup) { return func(s *setup) { s.cfg.Grace = d } }

func withAgent(cfg *rest.Config, agent string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = agent
	return cfg
}

type eventSink struct{ client kubernetes.Interface }

func (s *eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.client.CoreV1().Events(e.Namespace).CreateWithEventNamespaceWithContext(context.Background(), e)
}

func (s *eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.client.CoreV1().Events(e.Namespace).UpdateWithEventNamespaceWithContext(context.Background(), e)
}

func (s *eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.client.CoreV1().Events(e.Namespace).PatchWithEventNamespaceWithContext(context.Background(), e, data)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a namespace. Unlike cluster.Namespace it leaves the removal to the test.
func create(t testing.TB) string {
	t.Helper()
	ns, err := cluster.Client(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	check(t, err)
	return ns.Name
}

func remove(t testing.TB, name string) {
	t.Helper()
	check(t, cluster.Client(t).CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// gone waits until the namespace is gone and returns how long that took.
func gone(t testing.TB, name string, within time.Duration) time.Duration {
	t.Helper()
	client := cluster.Client(t)
	begin := time.Now()
	controlplane.Eventually(t, within, func(ctx context.Context) error {
		ns, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("namespace %s still there: %+v", name, ns.Status)
	})
	return time.Since(begin)
}
