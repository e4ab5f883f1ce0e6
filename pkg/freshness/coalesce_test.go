package freshness

import (
	"context"
	"net"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
)

// source is a connection that always has data.
type source struct {
	net.Conn
	size  int // bytes a read finds; more than any buffer if zero
	start time.Time
	reads []time.Duration // when, since start
}

func (s *source) Read(p []byte) (int, error) {
	s.reads = append(s.reads, time.Since(s.start))
	if s.size == 0 {
		return len(p), nil
	}
	return s.size, nil
}

func TestCoalescedReads(t *testing.T) {
	event := make([]byte, 500)
	for _, tt := range []struct {
		name  string
		size  int
		pause time.Duration // between two events
		want  time.Duration // the 40th read of the connection
	}{
		{"a quiet stream is not slowed down", len(event), time.Second, 39 * time.Second},
		{"a busy one is read every 150 ms once its burst is used up", len(event), 0, 20 * coalescePause},
		{"a list is read as fast as it comes", 0, 0, 0},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			from := &source{size: tt.size, start: time.Now()}
			dial := coalesceReads(func(context.Context, string, string) (net.Conn, error) { return from, nil })
			conn := fakeapi.Must(dial(t.Context(), "", ""))
			for len(from.reads) < 40 {
				fakeapi.Must(conn.Read(event))
				time.Sleep(tt.pause)
			}
			fakeapi.Want(t, "time of the 40th read", from.reads[39], tt.want)
		})
	}
}
