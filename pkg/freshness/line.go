package freshness

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Line is how informers reach the API server. Every byte of their watches and lists is noted by its Streams, a watch is held while the API
// server is away or being replaced, a first streaming list that says nothing is ended, and plain lists come in pages.
type Line struct {
	Streams *Streams

	fallback *fallback
	holds    *reconnecting
}

// NewLine returns a line that nobody uses yet.
func NewLine(clk clock.WithTicker, m *Metrics) *Line {
	return &Line{Streams: NewStreams(clk, m), fallback: newFallback(), holds: newReconnecting(clk)}
}

// Client returns a copy of cfg and an HTTP client to build clients with; it has connections of its own. What Line adds sits outside of authentication,
// so a request that is held back or repeated carries the credentials that are valid when it is sent at last. With coalesce, events that arrive in
// quick succession are read together, up to 75 ms late.
func (l *Line) Client(cfg *rest.Config, coalesce bool) (*rest.Config, *http.Client, error) {
	return l.client(cfg, coalesce, l.Streams.Link())
}

// FeedClient is Client for types that come and go; their lists are not counted.
func (l *Line) FeedClient(cfg *rest.Config) (*rest.Config, *http.Client, error) {
	link := l.Streams.Link()
	link.feeds = true
	return l.client(cfg, false, link)
}

func (l *Line) client(cfg *rest.Config, coalesce bool, link *Link) (*rest.Config, *http.Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = link.Dial
	if coalesce {
		cfg.Dial = coalesced(link.Dial)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("build the informers' client: %w", err)
	}
	return cfg, &http.Client{Transport: l.holds.wrap(link.Wrap(l.fallback.wrap(inPages(transport))))}, nil
}

// Forget drops what is known of a type that is no longer watched: types may come and go by the thousand.
func (l *Line) Forget(resource schema.GroupVersionResource) {
	l.fallback.forget(resource)
	l.Streams.Forget(resource)
}
