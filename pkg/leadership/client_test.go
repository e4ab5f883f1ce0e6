package leadership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

type connKey struct{}

// newLeaseEndpoint returns a server that responds to a GET with the status of its connection. Connections are numbered
// from 1.
func newLeaseEndpoint(t *testing.T, status func(conn int) int) (newClient func() coordinationv1client.LeaseInterface, requests *[]string) {
	t.Helper()
	conns, requests := 0, new([]string)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(int)
		*requests = append(*requests, fmt.Sprintf("%s %d", r.Proto, conn))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(status(conn))
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
	return func() coordinationv1client.LeaseInterface {
		client, err := NewLeaseClient(base, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if base.Timeout != 0 || base.Dial != nil {
			t.Error("the given config was changed")
		}
		return client.Leases("a")
	}, requests
}

// A load balancer assigns a new connection to a healthy server. The elector schedules its own attempts, so client-go
// must not wait for Retry-After. Each client has connections of its own.
func TestLeaseClientRedialsAfterRejection(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		newClient, requests := newLeaseEndpoint(t, func(conn int) int {
			if conn == 1 {
				return status
			}
			return http.StatusOK
		})
		client := newClient()
		if _, err := client.Get(t.Context(), "x", metav1.GetOptions{}); err == nil || len(*requests) != 1 {
			t.Errorf("%d: error %v after requests %v, want an error after one", status, err, *requests)
		}
		for _, client := range []coordinationv1client.LeaseInterface{client, client, newClient()} {
			if _, err := client.Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
				t.Errorf("%d: %v on a later connection", status, err)
			}
		}
		if got := fmt.Sprint(*requests); got != "[HTTP/1.1 1 HTTP/1.1 2 HTTP/1.1 2 HTTP/1.1 3]" {
			t.Errorf("%d: requests by protocol and connection: %v, want the second connection to be kept for its client", status, got)
		}
	}
}

// Unacknowledged bytes of a term must not arrive after the end of the term: the connection is reset, not closed.
func TestEndOfTermResetsConnections(t *testing.T) {
	for name, end := range map[string]func(*Fence){
		"abort": func(f *Fence) { f.abortTerm("lost") },
		"close": func(f *Fence) { f.closeTerm() },
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			fence := NewFence(realClock, NewMetrics(prometheus.NewRegistry()))
			for range 2 {
				conn, err := fence.Dial(t.Context(), "tcp", listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				peer, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				end(fence)
				if _, err := io.ReadAll(peer); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the peer reads %v, want a reset", err)
				}
				if _, err := conn.Write([]byte("late")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a write after the end: %v, want a closed connection", err)
				}
				peer.Close()
				conn.Close()
			}
		})
	}
}
