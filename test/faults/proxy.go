package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/connrotation"
)

// stopPatience bounds how long the end of a test waits for the proxy's goroutines.
const stopPatience = 10 * time.Second

// Proxy is a reverse proxy between a client and an API server. All methods are safe for concurrent use.
type Proxy struct {
	target    *rest.Config
	authority []byte // PEM
	name      string
	seed      uint64

	ctx     context.Context // ends with the proxy
	cancel  context.CancelFunc
	script  script
	journal journal
	watches *watches
	network *network
	dialer  *connrotation.Dialer // to the server
	reverse *httputil.ReverseProxy
	server  *http.Server

	certificate tls.Certificate

	lock   sync.Mutex
	closed bool
	busy   sync.WaitGroup // every goroutine and handler
}

// Option changes how a proxy is made.
type Option func(*Proxy)

// WithName sets the name of the proxy in the log, which also selects the random numbers of the proxy.
func WithName(name string) Option { return func(p *Proxy) { p.name = name } }

// WithSeed fixes the seed; FAULTS_SEED is not looked at.
func WithSeed(seed uint64) Option { return func(p *Proxy) { p.seed = seed } }

// New starts a proxy on a loopback port in front of the server of target, with the credentials of target. The proxy
// ends with the test, which fails if goroutines remain.
func New(t testing.TB, target *rest.Config, opts ...Option) *Proxy {
	t.Helper()
	seed, err := processSeed()
	if err != nil {
		t.Fatalf("faults: %v", err)
	}
	p := newProxy(target, append([]Option{WithSeed(seed)}, opts...))
	t.Logf("faults: proxy %q draws from %s=%d", p.name, seedVariable, p.seed)
	if err := p.startServing(t.Name() + "/" + p.name + "/script"); err != nil {
		t.Fatalf("faults: start proxy %q: %v", p.name, err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("faults: stop proxy %q: %v", p.name, err)
		}
	})
	return p
}

// Start is New for programs, which call Stop. Without WithSeed the seed is 0.
func Start(target *rest.Config, opts ...Option) (*Proxy, error) {
	p := newProxy(target, opts)
	if err := p.startServing(p.name + "/script"); err != nil {
		return nil, fmt.Errorf("start fault proxy %q: %w", p.name, err)
	}
	return p, nil
}

func newProxy(target *rest.Config, opts []Option) *Proxy {
	p := &Proxy{target: rest.CopyConfig(target), name: "client"}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

// Config returns a new client config for the proxy, with the limits and content type of the target and without
// credentials. Clients made from configs of a proxy share an HTTP/2 connection.
func (p *Proxy) Config() *rest.Config {
	config := rest.AnonymousClientConfig(p.target)
	config.Host = "https://" + p.network.address()
	config.TLSClientConfig = rest.TLSClientConfig{CAData: p.authority}
	config.Dial, config.Proxy = nil, nil
	return config
}

// Inject adds a rule, which by default hits every matching request until the rule is removed. The first rule that
// fires decides about a request. A rule with After, Chance or Next may let a request pass to later rules.
func (p *Proxy) Inject(m Match, f Fault, opts ...RuleOption) *Rule {
	return p.script.addRule(m, f, opts)
}

// Clear removes every rule. Watch faults and outages stay.
func (p *Proxy) Clear() { p.script.removeAll() }

// FreezeWatches stops the events of matching watch streams, including later streams. Headers are sent, and HTTP/2
// pings get responses.
func (p *Proxy) FreezeWatches(m Match) *WatchFault {
	return p.watches.addFault(&WatchFault{watches: p.watches, match: m, frozen: true})
}

// SlowWatches delays each event of matching watch streams by lag, including later streams.
func (p *Proxy) SlowWatches(m Match, lag time.Duration) *WatchFault {
	return p.watches.addFault(&WatchFault{watches: p.watches, match: m, lag: lag})
}

// CutIdleWatches resets matching watch streams without data for idle, as a proxy with a read timeout does. A frozen
// stream is idle, too.
func (p *Proxy) CutIdleWatches(m Match, idle time.Duration) *WatchFault {
	return p.watches.addFault(&WatchFault{watches: p.watches, match: m, idle: idle})
}

// CutWatches resets the matching open watch streams and returns the number of streams.
func (p *Proxy) CutWatches(m Match) int { return p.watches.cutMatching(m) }

// OpenWatches returns the number of matching watch streams with a header and without an end.
func (p *Proxy) OpenWatches(m Match) int { return p.watches.countMatching(m) }

// Outage takes the whole server away from the client until Restore, in place of any outage before.
func (p *Proxy) Outage(o Outage) error { return p.network.beginOutage(o) }

// Restore ends an outage.
func (p *Proxy) Restore() error { return p.network.endOutage() }

// CutConnections resets every connection of the client and accepts new connections.
func (p *Proxy) CutConnections() { p.network.resetAll() }

// Connections returns the number of connections accepted so far, including those of a black hole.
func (p *Proxy) Connections() int {
	p.network.lock.Lock()
	defer p.network.lock.Unlock()
	return p.network.accepted
}

// Requests returns every request seen so far, in order of arrival.
func (p *Proxy) Requests() []Request { return p.journal.allRequests() }

// Count counts requests by verbs and resources ("" any, comma-separated, resources as in Request.Resource) and status
// code (0: any).
func (p *Proxy) Count(verbs, resources string, code int) int {
	n := 0
	for _, q := range p.Requests() {
		if isListed(verbs, q.Verb) && isListed(resources, q.Resource) && (code == 0 || code == q.Code) {
			n++
		}
	}
	return n
}

func (p *Proxy) startServing(purpose string) error {
	p.script.random = newRandom(p.seed, purpose)
	server, _, err := rest.DefaultServerUrlFor(p.target)
	if err != nil {
		return fmt.Errorf("address of the server: %w", err)
	}
	transport, err := p.newTransport()
	if err != nil {
		return err
	}
	var key []byte
	if p.authority, key, err = cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	if p.certificate, err = tls.X509KeyPair(p.authority, key); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.watches = &watches{spawn: p.startWorker, open: map[*stream]struct{}{}}
	p.reverse = newReverse(server, transport, p.watches)
	p.server = p.newServer()
	p.network, err = newNetwork(func(l net.Listener) {
		_ = p.server.ServeTLS(l, "", "")
	}, p.startWorker)
	return err
}

// newTransport returns the way to the server, with the credentials of the target. The dialer closes all connections.
// CloseIdleConnections of the transport would leave connections of cancelled requests open.
func (p *Proxy) newTransport() (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(p.target)
	if err != nil {
		return nil, fmt.Errorf("TLS of the server: %w", err)
	}
	dial := p.target.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	p.dialer = connrotation.NewDialer(dial)
	return rest.HTTPWrappersForConfig(p.target, &http.Transport{
		TLSClientConfig: tlsConfig, DialContext: p.dialer.DialContext, Proxy: p.target.Proxy, ForceAttemptHTTP2: true, DisableCompression: true,
	})
}

func (p *Proxy) newServer() *http.Server {
	return &http.Server{
		Handler:     http.HandlerFunc(p.serveCounted),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				p.busy.Add(1)
			case http.StateClosed, http.StateHijacked:
				p.busy.Done()
			}
		},
	}
}

// addWorker counts a goroutine that is about to work; false if the proxy has ended.
func (p *Proxy) addWorker() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.closed {
		return false
	}
	p.busy.Add(1)
	return true
}

func (p *Proxy) serveCounted(w http.ResponseWriter, r *http.Request) {
	if !p.addWorker() {
		panic(http.ErrAbortHandler)
	}
	defer p.busy.Done()
	p.serveRequest(w, r)
}

func (p *Proxy) startWorker(f func()) bool {
	if !p.addWorker() {
		return false
	}
	go func() {
		defer p.busy.Done()
		f()
	}()
	return true
}

// Stop ends the proxy and waits for all goroutines.
func (p *Proxy) Stop() error {
	p.lock.Lock()
	p.closed = true
	p.lock.Unlock()
	p.cancel()
	err := p.network.closeAll()
	_ = p.server.Close()
	done := make(chan struct{})
	go func() {
		p.busy.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopPatience):
		err = errors.Join(err, fmt.Errorf("goroutines still busy after %v", stopPatience))
	}
	p.dialer.CloseAll()
	return err
}
