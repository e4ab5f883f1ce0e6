package leadership

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// NewIdentity returns hostname_uuid. Each process needs a new identity.
func NewIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read host name: %w", err)
	}
	return host + "_" + uuid.NewString(), nil
}

// NewLeaseClient builds the client of an Elector from a copy of base. Nothing else shares the
// connection and the rate limiter of the client, so a burst of other requests cannot delay a renewal.
// The client speaks HTTP/1.1: there a request that times out closes its connection, and the next
// attempt dials. On HTTP/2 every attempt before the renew deadline would wait on the same dead
// connection. After a rejection the next attempt dials, too, and starts when the elector is due,
// without regard to Retry-After.
func NewLeaseClient(base *rest.Config, renewDeadline time.Duration) (coordinationv1client.LeasesGetter, error) {
	cfg := rest.AddUserAgent(rest.CopyConfig(base), "leader-election")
	cfg.Timeout = max(time.Second, renewDeadline/2) // as kube-controller-manager v1.37
	cfg.QPS, cfg.RateLimiter = -1, nil
	cfg.Dial = (&net.Dialer{Timeout: cfg.Timeout, KeepAlive: 30 * time.Second}).DialContext
	cfg.TLSClientConfig.NextProtos = []string{"http/1.1"}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &redialTransport{next: rt} })
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the leader election client: %w", err)
	}
	return client, nil
}

// redialTransport uses another connection after an API server rejected a request: a load balancer
// assigns new connections to healthy servers, and does not move existing connections. The transport
// also removes Retry-After: client-go would sleep up to ten times while the lease expires.
type redialTransport struct {
	next     http.RoundTripper
	rejected atomic.Bool // the last request
}

// WrappedRoundTripper lets client-go find the TLS settings of next.
func (t *redialTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *redialTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.rejected.Swap(false) { // not earlier: a connection becomes idle when its response was read
		utilnet.CloseIdleConnectionsFor(t.next)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	t.rejected.Store(resp.StatusCode >= http.StatusBadRequest)
	resp.Header.Del("Retry-After")
	return resp, nil
}
