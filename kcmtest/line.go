package kcmtest

import (
	"errors"
	"fmt"
	"net"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// line is the one way of a manager to its API server. It shares no connection with anybody, so all can be closed at the end.
type line struct {
	config *rest.Config
	dialer *connrotation.Dialer
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
	cfg.Dial = l.dialer.DialContext
	cfg.Timeout = 0
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("rest.Config: %w", err)
	}
	l.config = &rest.Config{Host: address.String(), APIPath: cfg.APIPath, Transport: transport}
	return l, nil
}

// close closes all connections. Nobody may send a request any more.
func (l *line) close() {
	utilnet.CloseIdleConnectionsFor(l.config.Transport)
	l.dialer.CloseAll()
}
