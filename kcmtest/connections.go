package kcmtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

type connections struct {
	config *rest.Config
	dialer *connrotation.Dialer
	closed atomic.Bool
}

// newConnections prepares connections for a copy of cfg.
func newConnections(cfg *rest.Config) (*connections, error) {
	if cfg == nil {
		return nil, errors.New("no rest.Config")
	}
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil { // or client-go would watch the files from then on
		return nil, fmt.Errorf("rest.Config: %w", err)
	}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	address, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("rest.Config: host %q: %w", cfg.Host, err)
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as client-go's own
	}
	c := &connections{dialer: connrotation.NewDialer(dial)}
	cfg.Dial = c.dial
	cfg.Timeout = 0
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("rest.Config: %w", err)
	}
	c.config = &rest.Config{Host: address.String(), APIPath: cfg.APIPath, Transport: transport}
	return c, nil
}

// dial makes a connection, unless all are closed.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.closed.Load() {
		return nil, net.ErrClosed
	}
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err == nil && c.closed.Load() { // the connection may have been made after close
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return conn, err
}

// close closes all connections. Later requests fail.
func (c *connections) close() {
	c.closed.Store(true)
	utilnet.CloseIdleConnectionsFor(c.config.Transport)
	c.dialer.CloseAll()
}
