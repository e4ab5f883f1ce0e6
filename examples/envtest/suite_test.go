// Package suite is the test suite of a small operator on envtest, twice: byhand_test.go without kcmtest,
// kcmtest_test.go with it. Both run the same operator on the same API server.
package suite

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"minikcm/examples/envtest/site"
)

var (
	cfg    *rest.Config
	scheme = runtime.NewScheme()
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	env := &envtest.Environment{
		CRDDirectoryPaths: []string{"crd.yaml"}, ErrorIfCRDPathMissing: true, Scheme: scheme,
		ControlPlaneStartTimeout: 3 * time.Minute, ControlPlaneStopTimeout: time.Minute, // of a busy machine
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		env.BinaryAssetsDirectory = "../../bin"
	}
	err := clientgoscheme.AddToScheme(scheme)
	if err == nil {
		err = site.AddToScheme(scheme)
	}
	if err == nil {
		cfg, err = env.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start envtest:", err)
		return 1
	}
	code := m.Run()
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop envtest:", err)
		return 1
	}
	return code
}

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// operate runs the operator until the test ends and returns a client that does not read from caches.
func operate(t *testing.T) client.Client {
	t.Helper()
	unique := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &unique},
	})
	if err == nil {
		err = (&site.Controller{Client: mgr.GetClient()}).SetUp(mgr)
	}
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	return c
}

func namespace(t *testing.T, c client.Client) *corev1.Namespace {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	must(t, c.Create(t.Context(), ns))
	return ns
}

func newSite(t *testing.T, c client.Client, ns string) *site.Site {
	t.Helper()
	s := &site.Site{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: ns}, Spec: site.Spec{Page: "<h1>Hello</h1>", Replicas: 3}}
	must(t, c.Create(t.Context(), s))
	return s
}

// eventually polls until check returns nil, and logs the duration.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	began, last := time.Now(), error(nil)
	poll := func(context.Context) (done bool, err error) {
		last = check()
		return last == nil, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, poll); err != nil {
		t.Fatalf("%s: %v", what, last)
	}
	logDuration(t, what, began)
}

func logDuration(t *testing.T, what string, began time.Time) {
	t.Helper()
	t.Logf("%-36s %4d ms", what, time.Since(began).Milliseconds())
}
