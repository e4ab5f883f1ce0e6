package leadership

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
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
	// Events gets "became leader" before the first write of a term and "stopped leading" after the last, before the release. Each is waited
	// for, so that this order is also the one the API server sees. Nil: there are none.
	Events corev1client.EventsGetter
}

// NewClients builds the elector's own clients from a copy of base: nothing else shares their connection
// and rate limiter, so a burst of other requests cannot delay a renewal. They speak HTTP/1.1, because a
// request that times out there takes its connection with it and the next try gets a fresh one; on HTTP/2
// every try before the renew deadline would wait on the same dead connection.
func NewClients(base *rest.Config, renewDeadline time.Duration) (Clients, error) {
	cfg := rest.AddUserAgent(rest.CopyConfig(base), "leader-election")
	cfg.Timeout = max(time.Second, renewDeadline/2) // as kube-controller-manager v1.37
	cfg.QPS, cfg.RateLimiter = -1, nil
	cfg.Dial = (&net.Dialer{Timeout: cfg.Timeout, KeepAlive: 30 * time.Second}).DialContext
	cfg.TLSClientConfig.NextProtos = []string{"http/1.1"}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return Clients{}, fmt.Errorf("build the leader election client: %w", err)
	}
	return Clients{Leases: set.CoordinationV1(), Events: set.CoreV1()}, nil
}
