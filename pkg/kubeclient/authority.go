package kubeclient

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// authorityPause is how often a file with authorities is read at most while the server's certificate is not accepted.
	authorityPause = time.Second
	// authorityAge is how old what was read may become: an authority that was taken out of the file is trusted no longer than this.
	authorityAge = 5 * time.Minute // client-go v0.37
)

// followAuthority makes clients of cfg read the file with the authorities again as soon as they do not accept the server's
// certificate. client-go v0.37 looks at it every five minutes, so a server that changes its certificate together with the file would be
// away for as long.
func followAuthority(cfg *rest.Config) {
	if cfg.CAFile == "" || len(cfg.CAData) > 0 || cfg.Insecure {
		return
	}
	file := cfg.CAFile
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return &authorityFollower{file: file, base: rt, clock: clock.RealClock{}}
	})
}

// authorityFollower is around the transport that makes connections.
type authorityFollower struct {
	file  string
	base  http.RoundTripper
	clock clock.PassiveClock

	lock  sync.Mutex
	fresh *http.Transport // like the base, with authorities that were read later; nil: none were needed, and client-go reads the file
	read  time.Time       // when the file was last read
}

// WrappedRoundTripper lets client-go find the TLS settings below.
func (a *authorityFollower) WrappedRoundTripper() http.RoundTripper { return a.base }

// CloseIdleConnections closes those of the transport in use.
func (a *authorityFollower) CloseIdleConnections() {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.fresh != nil {
		a.fresh.CloseIdleConnections()
	}
	utilnet.CloseIdleConnectionsFor(a.base)
}

// RoundTrip implements http.RoundTripper. A request that has met an unknown authority was not sent, and fails; the next one may not.
func (a *authorityFollower) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.current(req.Context()).RoundTrip(req)
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		a.lock.Lock()
		defer a.lock.Unlock()
		a.refresh(req.Context(), authorityPause)
	}
	return resp, err
}

func (a *authorityFollower) current(ctx context.Context) http.RoundTripper {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.fresh == nil {
		return a.base
	}
	a.refresh(ctx, authorityAge)
	return a.fresh
}

// refresh reads the file, unless that was done less than age ago. What cannot be read changes nothing.
func (a *authorityFollower) refresh(ctx context.Context, age time.Duration) {
	now := a.clock.Now()
	if now.Sub(a.read) < age {
		return
	}
	a.read = now
	if err := a.reread(); err != nil {
		klog.FromContext(ctx).Error(err, "Authorities of the API server not read again", "file", a.file)
	}
}

func (a *authorityFollower) reread() error {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return errors.New("no certificate in it")
	}
	connects := a.connects()
	if connects == nil || connects.TLSClientConfig == nil || pool.Equal(connects.TLSClientConfig.RootCAs) {
		return nil
	}
	a.fresh = connects.Clone()
	a.fresh.TLSClientConfig.RootCAs = pool
	connects.CloseIdleConnections()
	return nil
}

// connects finds the transport in use, nil if it is not one we know how to copy.
func (a *authorityFollower) connects() *http.Transport {
	if a.fresh != nil {
		return a.fresh
	}
	rt := a.base
	for {
		switch t := rt.(type) {
		case *http.Transport:
			return t
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return nil
		}
	}
}
