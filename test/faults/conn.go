package faults

import (
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// conn is a client's connection that can be made to go silent without being closed.
type conn struct {
	*net.TCPConn
	closed  chan struct{}
	once    sync.Once
	onClose func(*conn)

	lock    sync.Mutex
	thawed  chan struct{} // nil: not held; closed on resume
	pending []byte        // written while held
}

func newConn(inner *net.TCPConn, onClose func(*conn)) *conn {
	return &conn{TCPConn: inner, closed: make(chan struct{}), onClose: onClose}
}

// holdBytes stops the bytes in both directions. The peer sees an open, silent connection.
func (c *conn) holdBytes() {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.thawed == nil {
		c.thawed = make(chan struct{})
	}
}

// resumeBytes sends the data written while the connection was held, in order, and blocks while the peer does not read.
func (c *conn) resumeBytes() {
	for {
		c.lock.Lock()
		pending := c.pending
		c.pending = nil
		if len(pending) == 0 {
			if c.thawed != nil {
				close(c.thawed)
				c.thawed = nil
			}
			c.lock.Unlock()
			return
		}
		c.lock.Unlock()
		if _, err := c.TCPConn.Write(pending); err != nil {
			c.closeWithReset()
			return
		}
	}
}

// closeWithReset closes the connection with an RST.
func (c *conn) closeWithReset() {
	_ = c.TCPConn.SetLinger(0)
	_ = c.Close()
}

// Read returns no data while the connection is held. Deadlines do not end that wait. Data of a peer that has aborted
// the connection meanwhile is lost.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	for held := false; ; held = true {
		c.lock.Lock()
		thawed := c.thawed
		c.lock.Unlock()
		if thawed == nil && held && c.peerAborted() {
			return 0, unix.ECONNRESET
		}
		if thawed == nil {
			return n, err
		}
		select {
		case <-thawed:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
}

func (c *conn) peerAborted() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	code := 0
	err = raw.Control(func(fd uintptr) { code, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) })
	return err == nil && code == int(unix.ECONNRESET)
}

// Write accepts all data while the connection is held, as the send buffer of a kernel would.
func (c *conn) Write(b []byte) (int, error) {
	c.lock.Lock()
	if c.thawed != nil {
		c.pending = append(c.pending, b...)
		c.lock.Unlock()
		return len(b), nil
	}
	c.lock.Unlock()
	return c.TCPConn.Write(b)
}

// Close may be called more than once.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		err = c.TCPConn.Close()
		c.onClose(c)
	})
	return err
}
