package controlplane

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"sync"
)

// relay passes TCP connections on to target and can hold back all data. The second API server reaches etcd through a
// relay.
type relay struct {
	listener net.Listener
	target   string
	copies   sync.WaitGroup

	lock  sync.Mutex
	open  chan struct{} // closed while data may pass
	only  []string      // types that are frozen, see freeze; empty: all
	conns map[net.Conn]bool
	done  bool
}

type link struct {
	relay *relay
	types map[string]bool
}

func startRelay(target string) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &relay{listener: listener, target: target, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(r.open)
	r.copies.Go(r.acceptConns)
	return r, nil
}

func (r *relay) serverURL() *url.URL {
	return &url.URL{Scheme: "http", Host: r.listener.Addr().String()}
}

func (r *relay) freezeTypes(types ...string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.only = types
	select {
	case <-r.open:
		r.open = make(chan struct{})
	default:
	}
}

// thawAll lets the data that was held back go on, and all that follows.
func (r *relay) thawAll() {
	r.lock.Lock()
	defer r.lock.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

func (r *relay) closeAll() {
	_ = r.listener.Close()
	r.lock.Lock()
	r.done = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.lock.Unlock()
	r.thawAll()
	r.copies.Wait()
}

func (r *relay) acceptConns() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return // stopped
		}
		out, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !r.keepConns(in, out) {
			return
		}
		l := &link{relay: r, types: map[string]bool{}}
		r.copies.Go(func() { r.passData(in, out, asking{gated{out, l}}) })
		r.copies.Go(func() { r.passData(out, in, gated{in, l}) })
	}
}

func (r *relay) keepConns(conns ...net.Conn) bool {
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

func (r *relay) passData(from, to net.Conn, gate io.Writer) {
	defer func() {
		r.lock.Lock()
		defer r.lock.Unlock()
		for _, conn := range []net.Conn{from, to} {
			_ = conn.Close()
			delete(r.conns, conn)
		}
	}()
	_, _ = io.Copy(gate, from)
}

// gated is a writer that waits while the relay is frozen. A gated writer is no net.Conn, so io.Copy does not move data
// in the kernel past the gate.
type gated struct {
	to   net.Conn
	link *link
}

func (g gated) Write(p []byte) (int, error) {
	r := g.link.relay
	r.lock.Lock()
	open := r.open
	covered := len(r.only) == 0 || slices.ContainsFunc(r.only, func(t string) bool { return g.link.types[t] })
	r.lock.Unlock()
	if covered {
		<-open
	}
	return g.to.Write(p)
}

type asking struct{ gated }

func (a asking) Write(p []byte) (int, error) {
	a.link.relay.lock.Lock()
	for _, key := range keyOfType.FindAllSubmatch(p, -1) {
		a.link.types[string(key[1])] = true
	}
	a.link.relay.lock.Unlock()
	return a.gated.Write(p)
}

// keyOfType finds the type in a key of etcd, such as /registry/namespaces/default.
var keyOfType = regexp.MustCompile(`/registry/(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+/)?([a-z]+)/`)
