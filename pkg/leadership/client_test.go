package leadership

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// balanced is a leaseServer on a network, behind a load balancer. sick returns the status of all
// responses on the connection with a number, 0 for a healthy server.
type balanced struct {
	*httptest.Server
	leases leaseServer

	lock  sync.Mutex
	conns int
	sick  func(conn int) (status int)
	asked int
}

type connKey struct{}

func newBalanced(t *testing.T, sick func(conn int) int) *balanced {
	t.Helper()
	b := &balanced{sick: sick}
	b.Server = httptest.NewUnstartedServer(b)
	b.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		b.lock.Lock()
		defer b.lock.Unlock()
		b.conns++
		return context.WithValue(ctx, connKey{}, b.conns)
	}
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

// ServeHTTP implements http.Handler.
func (b *balanced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(int)
	b.lock.Lock()
	b.asked++
	status := b.sick(conn)
	b.lock.Unlock()
	if status != 0 {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "sick", status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	var lease *coordinationv1.Lease
	var err error
	switch r.Method {
	case http.MethodGet:
		if lease = b.leases.read(); lease == nil {
			err = apierrors.NewNotFound(leases, "test")
		}
	case http.MethodPost:
		_ = json.NewDecoder(r.Body).Decode(&lease)
		lease = b.leases.write(lease)
	case http.MethodPut:
		_ = json.NewDecoder(r.Body).Decode(&lease)
		lease, err = b.leases.update(lease)
	}
	var refused *apierrors.StatusError
	if errors.As(err, &refused) {
		w.WriteHeader(int(refused.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(refused.ErrStatus)
		return
	}
	_ = json.NewEncoder(w).Encode(lease)
}

func (b *balanced) client(t *testing.T, renewDeadline time.Duration) coordinationv1client.LeasesGetter {
	t.Helper()
	client, err := NewLeaseClient(&rest.Config{Host: b.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, renewDeadline)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// One of several API servers behind a load balancer rejects all requests. Existing connections stay.
func TestElectorRedialsAfterRejection(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			b := newBalanced(t, func(conn int) int {
				if conn == 1 {
					return status
				}
				return 0
			})
			metrics := NewMetrics(prometheus.NewRegistry())
			cfg := Config{Enabled: true, LeaseDuration: 3 * time.Second, RenewDeadline: time.Second, RetryPeriod: 20 * time.Millisecond,
				Namespace: "kube-system", Name: "test", Identity: "a", ShutdownTimeout: time.Second}
			e, err := New(cfg, Deps{Leases: b.client(t, cfg.RenewDeadline), Fence: NewFence(realClock, metrics), Metrics: metrics})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			leads := false
			err = e.Run(ctx, func(ctx context.Context, _ Term) error {
				leads = true
				cancel()
				<-ctx.Done()
				return nil
			})
			if err != nil || !leads {
				t.Errorf("Run = %v, leads: %v, %d requests on %d connections; want the second connection to be taken", err, leads, b.asked, b.conns)
			}
		})
	}
}

// The elector schedules its own attempts, and returns the error of the server.
func TestElectorIgnoresRetryAfter(t *testing.T) {
	b := newBalanced(t, func(int) int { return http.StatusServiceUnavailable })
	_, err := b.client(t, 2*time.Second).Leases("kube-system").Get(t.Context(), "test", metav1.GetOptions{})
	if !apierrors.IsServiceUnavailable(err) || b.asked != 1 {
		t.Errorf("Get = %v after %d requests, want what the first was answered", err, b.asked)
	}
}
