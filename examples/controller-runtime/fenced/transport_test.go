package fenced

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"minikcm/pkg/leadership"
)

func TestWhatPassesBesideTheFence(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/shop/events":                                       true,
		"/api/v1/namespaces/shop/events/web.17":                                true,
		"/apis/events.k8s.io/v1/namespaces/shop/events":                        true,
		"/apis/authentication.k8s.io/v1/tokenreviews":                          true,
		"/apis/authorization.k8s.io/v1/subjectaccessreviews":                   true,
		"/clusters/a/apis/authorization.k8s.io/v1/subjectaccessreviews":        true,
		"/api/v1/namespaces/a/services/b/proxy/apis/authorization.k8s.io/v1/x": false,
		"/api/v1/namespaces/shop/configmaps/events":                            false,
		"/api/v1/namespaces/events":                                            false,
		"/apis/example.com/v1/namespaces/shop/events":                          false,
		"/api/v1/namespaces/shop/pods":                                         false,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":                      false,
	} {
		if got := passes(path); got != want {
			t.Errorf("passes(%s) = %v, want %v", path, got, want)
		}
	}
}

func TestNothingPassesBesideTheFenceUnseen(t *testing.T) {
	for name, cfg := range map[string]*rest.Config{
		"a Transport": {Transport: http.DefaultTransport},
		"a Dial":      {Dial: (&net.Dialer{}).DialContext},
	} {
		if _, err := build(cfg, nil, nil, 0, manager.Options{}); err == nil || !strings.Contains(err.Error(), "beside the fence") {
			t.Errorf("with %s: build = %v, want an error", name, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func request(ctx context.Context, method, path string) *http.Request {
	return httptest.NewRequestWithContext(ctx, method, path, strings.NewReader("{}"))
}

func okResponse() *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}
}

func TestStandbyWritesNothingButEventsAndReviews(t *testing.T) {
	fence := leadership.NewFence(clock.RealClock{}, leadership.NewMetrics(prometheus.NewRegistry()))
	server := roundTripper(func(*http.Request) (*http.Response, error) { return okResponse(), nil })
	rt := &transport{guarded: fence.Wrap(server), beside: server}
	for _, tt := range []struct {
		method, path string
		rejected     bool
	}{
		{http.MethodPost, "/api/v1/namespaces/shop/pods", true},
		{http.MethodGet, "/api/v1/namespaces/shop/pods", false},
		{http.MethodPost, "/api/v1/namespaces/shop/events", false},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", false},
	} {
		resp, err := rt.RoundTrip(request(t.Context(), tt.method, tt.path))
		if errors.Is(err, leadership.ErrFenced) != tt.rejected {
			t.Errorf("%s %s: error %v, want rejected: %v", tt.method, tt.path, err, tt.rejected)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}

// The context of a reconcile ends when the manager stops.
func TestWriteThatWasSentOutlivesItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	server := roundTripper(func(req *http.Request) (*http.Response, error) {
		cancel()
		return okResponse(), req.Context().Err()
	})
	rt := &transport{guarded: server, beside: server}
	resp, err := rt.RoundTrip(request(ctx, http.MethodPatch, "/api/v1/namespaces/shop/pods/a"))
	if err != nil {
		t.Fatalf("a write in flight: %v, want its response", err)
	}
	resp.Body.Close()
	sent := false
	rt.guarded = roundTripper(func(*http.Request) (*http.Response, error) { sent = true; return okResponse(), nil })
	if _, err := rt.RoundTrip(request(ctx, http.MethodPatch, "/api/v1/namespaces/shop/pods/a")); !errors.Is(err, context.Canceled) || sent {
		t.Errorf("the next write: error %v, sent: %v; want it not to be sent", err, sent)
	}
}

func TestDeadlineOfAWriteHolds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	server := roundTripper(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	rt := &transport{guarded: server, beside: server}
	if _, err := rt.RoundTrip(request(ctx, http.MethodPatch, "/api/v1/namespaces/shop/pods/a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that the deadline has passed", err)
	}
}
