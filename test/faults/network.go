package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Outage is a kind of absence of the whole server.
type Outage int

const (
	up Outage = iota
	// Refused resets connections and rejects new connections, as if the server process had died.
	Refused
	// BlackHole accepts connections and sends no data, not even HTTP/2 pings. Restore resets these connections.
	BlackHole
	// Partition is a BlackHole whose Restore delivers all data in flight in order, as TCP does when a network heals. A
	// request whose client has closed the connection may still reach the server, unless the client has aborted the
	// connection.
	Partition
)

type network struct {
	port     int
	reserved int
	serve    func(net.Listener)
	spawn    func(func()) bool

	lock     sync.Mutex
	outage   Outage
	listener net.Listener // nil: refusing
	conns    map[*conn]struct{}
	accepted int // connections so far
}

func newNetwork(serve func(net.Listener), spawn func(func()) bool) (*network, error) {
	port, fd, err := reservePort()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	n := &network{port: port, reserved: fd, serve: serve, spawn: spawn, conns: map[*conn]struct{}{}}
	if err := n.openPort(); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return n, nil
}

func reservePort() (port, fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err != nil {
		return 0, 0, errors.Join(err, unix.Close(fd))
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, errors.Join(err, unix.Close(fd))
	}
	return address.(*unix.SockaddrInet4).Port, fd, nil
}

// openPort opens the port. The caller holds the lock or is alone.
func (n *network) openPort() error {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, set)
	}}
	inner, err := config.Listen(context.Background(), "tcp4", n.address())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	n.listener = inner
	if !n.spawn(func() { n.serve(&listener{Listener: inner, network: n}) }) {
		n.stopListening()
		return net.ErrClosed // the test has ended
	}
	return nil
}

func (n *network) address() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

// beginOutage starts an outage in place of any other.
func (n *network) beginOutage(outage Outage) error {
	n.lock.Lock()
	n.outage = outage
	if outage == Refused {
		n.stopListening()
		n.lock.Unlock()
		n.resetAll()
		return nil
	}
	defer n.lock.Unlock()
	for c := range n.conns {
		c.holdBytes()
	}
	if n.listener == nil {
		return n.openPort()
	}
	return nil
}

// endOutage ends the outage. A black hole's connections are reset, a partition's flow again.
func (n *network) endOutage() error {
	n.lock.Lock()
	before := n.outage
	n.outage = up
	if before == BlackHole {
		n.lock.Unlock()
		n.resetAll()
		return nil
	}
	defer n.lock.Unlock()
	if before == Partition {
		for c := range n.conns {
			n.spawn(c.resumeBytes)
		}
	}
	if n.listener == nil {
		return n.openPort()
	}
	return nil
}

// closeAll frees the port and every connection.
func (n *network) closeAll() error {
	n.lock.Lock()
	n.stopListening()
	n.lock.Unlock()
	n.resetAll()
	return unix.Close(n.reserved)
}

// stopListening needs the lock.
func (n *network) stopListening() {
	if n.listener != nil {
		_ = n.listener.Close()
		n.listener = nil
	}
}

// resetAll resets every connection. The lock must not be held: a closing connection removes an entry of the list.
func (n *network) resetAll() {
	n.lock.Lock()
	conns := slices.Collect(maps.Keys(n.conns))
	n.lock.Unlock()
	for _, c := range conns {
		c.closeWithReset()
	}
}

func (n *network) removeConn(c *conn) {
	n.lock.Lock()
	defer n.lock.Unlock()
	delete(n.conns, c)
}

type listener struct {
	net.Listener
	network *network
}

func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	n := l.network
	c := newConn(inner.(*net.TCPConn), n.removeConn)
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.listener != l.Listener { // closed between the accept and now
		_ = inner.Close()
		return nil, net.ErrClosed
	}
	if n.outage != up {
		c.holdBytes()
	}
	n.conns[c] = struct{}{}
	n.accepted++
	return c, nil
}
