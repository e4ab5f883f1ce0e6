package leadership

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
)

type connKey struct{}

// A load balancer assigns a new connection to a healthy server. The elector schedules its own attempts, so client-go
// must not wait for Retry-After. Each client has connections of its own.
func TestLeaseClientRedialsAfterRejection(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		conns, requests := 0, []string{}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn := r.Context().Value(connKey{}).(int)
			requests = append(requests, fmt.Sprintf("%s %d", r.Proto, conn))
			w.Header().Set("Content-Type", "application/json")
			if conn == 1 {
				w.Header().Set("Retry-After", "30")
				w.WriteHeader(status)
			}
			w.Write([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"x"}}`))
		}))
		server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			conns++
			return context.WithValue(ctx, connKey{}, conns)
		}
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		base := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		first, second := fakeapi.Must(NewLeaseClient(base, 10*time.Second)), fakeapi.Must(NewLeaseClient(base, 10*time.Second))
		fakeapi.Want(t, "the given config is unchanged", base.Timeout == 0 && base.Dial == nil, true)
		if _, err := first.Leases("a").Get(t.Context(), "x", metav1.GetOptions{}); err == nil || len(requests) != 1 {
			t.Errorf("%d: error %v after requests %v, want an error after one", status, err, requests)
		}
		for _, client := range []coordinationv1client.LeasesGetter{first, first, second} {
			_, err := client.Leases("a").Get(t.Context(), "x", metav1.GetOptions{})
			fakeapi.Want(t, fmt.Sprint(status, ": error on a later connection"), err, nil)
		}
		// The second connection is kept for its client.
		fakeapi.Want(t, fmt.Sprint(status, ": requests by protocol and connection"), strings.Join(requests, ", "), "HTTP/1.1 1, HTTP/1.1 2, HTTP/1.1 2, HTTP/1.1 3")
	}
}

// Unacknowledged bytes of a term must not arrive after the end of the term: the connection is reset, not closed.
func TestEndOfTermResetsConnections(t *testing.T) {
	for name, end := range map[string]func(*Fence){
		"abort": func(f *Fence) { f.abortTerm("lost") },
		"close": func(f *Fence) { f.closeTerm() },
	} {
		t.Run(name, func(t *testing.T) {
			listener := fakeapi.Must(net.Listen("tcp", "127.0.0.1:0"))
			defer listener.Close()
			fence := NewFence(realClock, NewMetrics(prometheus.NewRegistry()))
			for range 2 {
				conn := fakeapi.Must(fence.Dial(t.Context(), "tcp", listener.Addr().String()))
				peer := fakeapi.Must(listener.Accept())
				end(fence)
				_, err := io.ReadAll(peer)
				fakeapi.WantError(t, "error of the peer", err, syscall.ECONNRESET)
				_, err = conn.Write([]byte("late"))
				fakeapi.WantError(t, "error of a write after the end", err, net.ErrClosed)
				peer.Close()
				conn.Close()
			}
		})
	}
}
