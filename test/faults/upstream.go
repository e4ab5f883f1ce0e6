package faults

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// upstream is the proxy's connections to the server, shared with no other client.
type upstream struct {
	target *rest.Config

	lock   sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// transport returns the way to the server, with the credentials of the target.
func (u *upstream) transport() (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(u.target)
	if err != nil {
		return nil, fmt.Errorf("TLS of the server: %w", err)
	}
	base := &http.Transport{
		TLSClientConfig:    tlsConfig,
		DialContext:        u.dial,
		Proxy:              u.target.Proxy,
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
	}
	wrapped, err := rest.HTTPWrappersForConfig(u.target, base)
	if err != nil {
		return nil, fmt.Errorf("credentials for the server: %w", err)
	}
	return wrapped, nil
}

func (u *upstream) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := u.target.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	inner, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &upstreamConn{Conn: inner, upstream: u}
	u.lock.Lock()
	defer u.lock.Unlock()
	if u.closed {
		_ = inner.Close()
		return nil, net.ErrClosed
	}
	u.conns[c] = struct{}{}
	return c, nil
}

// close closes every connection. CloseIdleConnections of the transport would leave connections of cancelled requests
// open.
func (u *upstream) close() {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.(*upstreamConn).Conn.Close()
	}
}

type upstreamConn struct {
	net.Conn
	upstream *upstream
}

func (c *upstreamConn) Close() error {
	c.upstream.lock.Lock()
	delete(c.upstream.conns, c)
	c.upstream.lock.Unlock()
	return c.Conn.Close()
}
