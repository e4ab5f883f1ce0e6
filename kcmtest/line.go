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

// line is the one way of a manager to its API server. It shares no connection with anybody, so all can be closed at the end.
type line struct {
	config *rest.Config
	dialer *connrotation.Dialer
	closed atomic.Bool
}

// newLine returns the line behind a configuration, which it copies. Nothing is asked over the network.
func newLine(cfg *rest.Config) (*line, error) {
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
	l := &line{dialer: connrotation.NewDialer(dial)}
	cfg.Dial = l.dial
	cfg.Timeout = 0
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("rest.Config: %w", err)
	}
	l.config = &rest.Config{Host: address.String(), APIPath: cfg.APIPath, Transport: transport}
	return l, nil
}

// dial makes a connection, unless the line is closed.
func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	conn, err := l.dialer.DialContext(ctx, network, address)
	if err == nil && l.closed.Load() { // maybe it was made after close had closed all
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return conn, err
}

// close closes all connections, and no other will be made. Who sends a request nevertheless gets an error.
func (l *line) close() {
	l.closed.Store(true)
	utilnet.CloseIdleConnectionsFor(l.config.Transport)
	l.dialer.CloseAll()
}
