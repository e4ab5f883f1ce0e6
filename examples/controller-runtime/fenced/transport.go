package fenced

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"

	"minikcm/pkg/leadership"
)

// config returns a copy of cfg with the fence under every client made from it.
func config(cfg *rest.Config, fence *leadership.Fence) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = fence.Dial
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return &transport{guarded: fence.Wrap(rt), beside: rt}
	})
	return cfg
}

// transport sends most requests through the fence.
type transport struct {
	guarded http.RoundTripper
	beside  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.beside }

// RoundTrip implements http.RoundTripper.
//
// A write in flight outlives the contexts of reconciles, which end when the manager stops: its result would be
// unknown, and the lease could not be released before the write's deadline. It ends with its response, its own
// deadline or the fence's. The next request of the same reconcile is not sent.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if passes(req.URL.Path) {
		return t.beside.RoundTrip(req)
	}
	if reads(req.Method) {
		return t.guarded.RoundTrip(req)
	}
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper always closes the body
		}
		return nil, err
	}
	whole, free := context.WithCancel(context.WithoutCancel(ctx))
	if deadline, ok := ctx.Deadline(); ok {
		free()
		whole, free = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	resp, err := t.guarded.RoundTrip(req.WithContext(whole))
	if err != nil {
		free()
		return nil, err
	}
	resp.Body = &responseBody{ReadCloser: resp.Body, free: free}
	return resp, nil
}

// responseBody stops the timer of its request at the end of the body.
type responseBody struct {
	io.ReadCloser
	free context.CancelFunc
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	defer b.free()
	return b.ReadCloser.Close()
}

func reads(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return false
	}
	return true
}

// beside matches paths of POST and PATCH requests that change nothing in the cluster: events and reviews, which a
// standby sends to authorize reads of its metrics. The paths may have a prefix, but not that of a proxy to a node,
// service or pod.
var beside = regexp.MustCompile(`/api/v1/namespaces/[^/]+/events(/[^/]+)?$|/apis/events\.k8s\.io/|/apis/(authentication|authorization)\.k8s\.io/`)

func passes(path string) bool { return beside.MatchString(path) && !strings.Contains(path, "/proxy/") }
