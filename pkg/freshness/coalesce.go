package freshness

import (
	"bufio"
	"context"
	"net"
	"time"

	"golang.org/x/time/rate"
)

const (
	// coalescePause is the shortest time between two reads of a busy connection, and the longest delay of an event.
	coalescePause = 75 * time.Millisecond
	// coalesceBurst is the number of reads without a pause after a rest. A connection that is not busy is not slowed down.
	coalesceBurst = 20
	// coalesceBuffer is the size of one read. A full buffer is followed by the next read without a pause.
	coalesceBuffer = 64 << 10
)

// dialer opens connections, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// coalesced returns a dialer for a stream of many small events that are not urgent, such as the renewals of the Leases of a thousand nodes.
// At more than 13 reads a second the events of a pause are read together, up to 75 ms late. A wake-up costs more than decoding an event.
func coalesced(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newCoalescedConn(conn), nil
	}
}

// coalescedConn waits before a read after many reads.
type coalescedConn struct {
	net.Conn
	buffer *bufio.Reader
	closed context.Context // ends with the connection
	close  context.CancelFunc
}

func newCoalescedConn(conn net.Conn) *coalescedConn {
	closed, closeNow := context.WithCancel(context.Background())
	paced := &pacedReader{conn: conn, closed: closed, pace: rate.NewLimiter(rate.Every(coalescePause), coalesceBurst)}
	return &coalescedConn{Conn: conn, buffer: bufio.NewReaderSize(paced, coalesceBuffer), closed: closed, close: closeNow}
}

// Read implements net.Conn.
func (c *coalescedConn) Read(p []byte) (int, error) { return c.buffer.Read(p) }

// Close implements net.Conn. A Read that waits returns at once.
func (c *coalescedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// pacedReader fills the buffer.
type pacedReader struct {
	conn   net.Conn
	closed context.Context
	pace   *rate.Limiter
	more   bool // The last read filled the buffer.
}

// Read implements io.Reader.
func (r *pacedReader) Read(p []byte) (int, error) {
	if !r.more {
		_ = r.pace.Wait(r.closed) // Fails only if the connection is closed, as the next line does.
	}
	n, err := r.conn.Read(p)
	r.more = n == len(p)
	return n, err
}
