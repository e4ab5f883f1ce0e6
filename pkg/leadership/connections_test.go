package leadership

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Unacknowledged bytes of a term must not arrive after the end of the term: the connection is reset,
// not closed.
func TestEndOfTermResetsConnections(t *testing.T) {
	for name, end := range map[string]func(*Fence){
		"hard":   func(f *Fence) { f.abortTerm("lost") },
		"gentle": func(f *Fence) { f.closeTerm("over") },
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
