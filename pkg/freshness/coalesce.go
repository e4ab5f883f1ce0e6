package freshness

import (
	"bufio"
	"context"
	"net"
	"time"

	"golang.org/x/time/rate"
)

const (
	// coalescePause is the least time between two looks at a busy connection, and so the most that coalescing delays an event.
	coalescePause = 75 * time.Millisecond
	// coalesceBurst looks are free after a rest: a connection that is not busy is not slowed down at all.
	coalesceBurst = 20
	// coalesceBuffer is how much one look takes. Who finds it full has more to read, and does not wait.
	coalesceBuffer = 64 << 10
)

// dialer opens connections, as net.Dialer.DialContext does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// coalesced returns a dialer for a stream of many small events that nobody waits for, such as the renewals of the Leases of a thousand
// nodes: at more than 13 reads a second what has arrived in the meantime is read together, up to 75 ms late. Waking up for each event
// costs more than decoding it.
func coalesced(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newCoalescedConn(conn), nil
	}
}

// coalescedConn waits before it reads, if it has read often of late.
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

// pacedReader is what fills the buffer.
type pacedReader struct {
	conn   net.Conn
	closed context.Context
	pace   *rate.Limiter
	more   bool // the last look did not take all there was
}

// Read implements io.Reader.
func (r *pacedReader) Read(p []byte) (int, error) {
	if !r.more {
		_ = r.pace.Wait(r.closed) // fails only if the connection is closed, which the next line finds out
	}
	n, err := r.conn.Read(p)
	r.more = n == len(p)
	return n, err
}
