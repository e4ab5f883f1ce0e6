package controlplane

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
)

// relay passes TCP connections on to target and can hold back everything on them. The second API server reaches etcd
// through one: frozen, it goes on answering from a cache that does not move.
type relay struct {
	listener net.Listener
	target   string
	copies   sync.WaitGroup

	lock  sync.Mutex
	open  chan struct{} // closed while data may pass
	conns map[net.Conn]bool
	done  bool
}

func startRelay(target string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &relay{listener: listener, target: target, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(r.open)
	r.copies.Go(r.accept)
	return r, nil
}

func (r *relay) url() *url.URL { return &url.URL{Scheme: "http", Host: r.listener.Addr().String()} }

// freeze holds back all data, also on connections that are opened later. A frozen relay may be frozen again.
func (r *relay) freeze() {
	r.lock.Lock()
	defer r.lock.Unlock()
	select {
	case <-r.open:
		r.open = make(chan struct{})
	default:
	}
}

// thaw lets the data that was held back go on, and all that follows.
func (r *relay) thaw() {
	r.lock.Lock()
	defer r.lock.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

// stop ends all connections and waits until nothing runs any more.
func (r *relay) stop() {
	_ = r.listener.Close()
	r.lock.Lock()
	r.done = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.lock.Unlock()
	r.thaw()
	r.copies.Wait()
}

func (r *relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return // stopped
		}
		out, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = in.Close() // to the client as if etcd were down, which it is
			continue
		}
		if !r.keep(in, out) {
			return
		}
		r.copies.Go(func() { r.pass(in, out) })
		r.copies.Go(func() { r.pass(out, in) })
	}
}

// keep notes connections for stop; after stop it closes them and returns false.
func (r *relay) keep(conns ...net.Conn) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, conn := range conns {
		if r.done {
			_ = conn.Close()
		} else {
			r.conns[conn] = true
		}
	}
	return !r.done
}

// pass copies from one connection to the other until either ends, then ends both.
func (r *relay) pass(from, to net.Conn) {
	defer func() {
		r.lock.Lock()
		defer r.lock.Unlock()
		for _, conn := range []net.Conn{from, to} {
			_ = conn.Close()
			delete(r.conns, conn)
		}
	}()
	_, _ = io.Copy(gated{to, r}, from)
}

// gated is a writer that waits while its relay is frozen. Being no net.Conn it keeps io.Copy from moving the data in
// the kernel, past the gate.
type gated struct {
	to    net.Conn
	relay *relay
}

func (g gated) Write(p []byte) (int, error) {
	g.relay.lock.Lock()
	open := g.relay.open
	g.relay.lock.Unlock()
	<-open
	return g.to.Write(p)
}
