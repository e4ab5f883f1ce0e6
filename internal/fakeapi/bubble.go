package fakeapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Quiet discards the log of errors that a test provokes.
func Quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Bubble runs a subtest in fake time.
func Bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// FillCaches starts caches in a bubble of fake time and waits until the caches are filled. The result stops the caches.
func FillCaches(t testing.TB, caches interface {
	Start(context.Context)
	WaitForSync(context.Context) error
	Shutdown()
}) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(Quiet(t.Context()))
	caches.Start(ctx)
	NoError(t, caches.WaitForSync(ctx))
	synctest.Wait()
	return func() {
		cancel()
		caches.Shutdown()
	}
}

// Term begins a term of a controller in a bubble of fake time and waits until the controller is idle. The result ends
// the term; a second call does nothing.
func Term(t testing.TB, run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(Quiet(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// BusyClient returns a client whose requests get status 429 with a Retry-After of 30 s.
func BusyClient(t testing.TB) kubernetes.Interface {
	t.Helper()
	client := Must(kubernetes.NewForConfig(&rest.Config{Host: "http://busy", QPS: -1, Transport: busy{}}))
	return client
}

type busy struct{}

func (busy) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}, Body: http.NoBody}, nil
}

// NewRefusals returns responses of an API server that did not execute a request about an object of the core group, and
// the 404 of a proxy.
func NewRefusals(kind, resource, name string) map[string]error {
	what := schema.GroupResource{Resource: resource}
	return map[string]error{
		"conflict":          apierrors.NewConflict(what, name, errors.New("not now")),
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"internal error":    apierrors.NewInternalError(errors.New("webhook")),
		"invalid":           apierrors.NewInvalid(schema.GroupKind{Kind: kind}, name, nil),
		"forbidden":         apierrors.NewForbidden(what, name, errors.New("webhook")),
		"404 of a proxy":    apierrors.NewGenericServerResponse(http.StatusNotFound, "get", what, name, "404 page not found", 0, true),
	}
}

// Syncs returns the number of syncs of the loop that serves a queue.
func Syncs(t testing.TB, registry prometheus.Gatherer, queue string) (n uint64) {
	t.Helper()
	families := Must(registry.Gather())
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "controller_sync_duration_seconds" && label.GetName() == "queue" && label.GetValue() == queue {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return n
}

// Histogram returns what a histogram has observed.
func Histogram(t testing.TB, h prometheus.Observer) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	NoError(t, h.(prometheus.Metric).Write(&m))
	return m.GetHistogram()
}

// Until waits, in a bubble of fake time, until d after the creation of the clientset and until all goroutines are idle.
func (c *Clientset) Until(d time.Duration) {
	time.Sleep(time.Until(c.Begin.Add(d)))
	synctest.Wait()
}

// PlaySteps calls each step at its time after the creation of the clientset.
func PlaySteps[W interface{ Until(time.Duration) }](w W, steps map[time.Duration]func(W)) {
	for _, at := range slices.Sorted(maps.Keys(steps)) {
		w.Until(at)
		steps[at](w)
	}
}
