package freshness

import (
	"bufio"
	"context"
	"net"
	"time"

	"golang.org/x/time/rate"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// coalescePause is the shortest time between two reads of a busy connection, and the longest delay of an event.
	coalescePause = 150 * time.Millisecond
	// coalesceBurst is the number of reads without a pause after a rest. A connection that is not busy is
	// not slowed down.
	coalesceBurst = 20
	// coalesceBuffer is the size of one read. A full buffer is followed by the next read without a pause.
	coalesceBuffer = 64 << 10
)

// coalesceReads returns a dialer for a stream of many small events that are not urgent, such as the
// renewals of the Leases of a thousand nodes. At more than 7 reads a second the events of a pause are read
// together, up to 150 ms late. A wake-up costs more than decoding an event.
func coalesceReads(dial utilnet.DialFunc) utilnet.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		paced := &pacedConn{Conn: conn, pace: rate.NewLimiter(rate.Every(coalescePause), coalesceBurst)}
		return &coalescedConn{conn, bufio.NewReaderSize(paced, coalesceBuffer)}, nil
	}
}

// coalescedConn reads a connection through a buffer.
type coalescedConn struct {
	net.Conn
	buffer *bufio.Reader
}

// Read implements net.Conn. It returns at most coalescePause after the end of the connection.
func (c *coalescedConn) Read(p []byte) (int, error) { return c.buffer.Read(p) }

// pacedConn waits before a read after many reads.
type pacedConn struct {
	net.Conn
	pace *rate.Limiter
	more bool // the last read filled the buffer
}

// Read implements net.Conn.
func (c *pacedConn) Read(p []byte) (int, error) {
	if !c.more {
		_ = c.pace.Wait(context.Background()) // at most coalescePause
	}
	n, err := c.Conn.Read(p)
	c.more = n == len(p)
	return n, err
}
