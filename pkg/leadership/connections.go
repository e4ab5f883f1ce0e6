package leadership

import (
	"context"
	"net"
	"sync"
	"time"
)

// connections are those that requests of terms go out on. When a term is over they are aborted: a write that was given up may still lie
// in a send buffer, and would reach the API server once a broken network heals, however long that takes.
type connections struct {
	dialer net.Dialer

	lock sync.Mutex
	open map[*connection]struct{}
}

func newConnections() *connections {
	return &connections{
		dialer: net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}, // as client-go's own
		open:   map[*connection]struct{}{},
	}
}

// connection takes itself off the list when it is closed.
type connection struct {
	net.Conn
	all *connections
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tracked := &connection{conn, c}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.open[tracked] = struct{}{}
	return tracked, nil
}

// abort closes every connection, and what was written to it and not yet acknowledged is dropped.
func (c *connections) abort() {
	c.lock.Lock()
	defer c.lock.Unlock()
	for conn := range c.open {
		if tcp, ok := conn.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // closed already: nothing to drop
		}
		_ = conn.Conn.Close()
	}
	clear(c.open)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.lock.Lock()
	delete(c.all.open, c)
	c.all.lock.Unlock()
	return c.Conn.Close()
}
