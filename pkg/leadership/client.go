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
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"minikcm/pkg/outcome"
)

// NewIdentity returns hostname_uuid, new for each process.
func NewIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read host name: %w", err)
	}
	return host + "_" + uuid.NewString(), nil
}

// Clients are what an Elector talks through.
type Clients struct {
	Leases coordinationv1client.LeasesGetter
	// Events gets "became leader" at the start of a term and "stopped leading" after the release. Nil: there are none.
	Events corev1client.EventsGetter
}

// NewClients builds the elector's own clients from a copy of base: nothing else shares their connection
// and rate limiter, so a burst of other requests cannot delay a renewal. They speak HTTP/1.1, because a
// request that times out there takes its connection with it and the next try gets a fresh one; on HTTP/2
// every try before the renew deadline would wait on the same dead connection. After a refusal the next try takes
// a fresh connection, too, and begins when the elector wants it, not when the answer asks for it (Retry-After).
func NewClients(base *rest.Config, renewDeadline time.Duration) (Clients, error) {
	cfg := rest.AddUserAgent(rest.CopyConfig(base), "leader-election")
	cfg.Timeout = max(time.Second, renewDeadline/2) // as kube-controller-manager v1.37
	cfg.QPS, cfg.RateLimiter = -1, nil
	cfg.Dial = (&net.Dialer{Timeout: cfg.Timeout, KeepAlive: 30 * time.Second}).DialContext
	cfg.TLSClientConfig.NextProtos = []string{"http/1.1"}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &fickle{next: rt} })
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return Clients{}, fmt.Errorf("build the leader election client: %w", err)
	}
	return Clients{Leases: set.CoordinationV1(), Events: set.CoreV1()}, nil
}

// fickle takes another connection after an API server has refused a request: a load balancer gives new connections to healthy servers, and leaves the old
// ones where they are. It also hides Retry-After: client-go would sleep for so long, up to ten times, while the lease runs out.
type fickle struct {
	next    http.RoundTripper
	refused atomic.Bool // the last request
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (f *fickle) WrappedRoundTripper() http.RoundTripper { return f.next }

// RoundTrip implements http.RoundTripper.
func (f *fickle) RoundTrip(req *http.Request) (*http.Response, error) {
	if f.refused.Swap(false) { // not earlier: a connection is idle when the answer was read
		utilnet.CloseIdleConnectionsFor(f.next)
	}
	resp, err := f.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	f.refused.Store(refuses(resp.StatusCode))
	resp.Header.Del("Retry-After")
	return resp, nil
}

// refuses says whether another API server might not give an answer with this HTTP status.
func refuses(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return !outcome.Complete(status)
}
