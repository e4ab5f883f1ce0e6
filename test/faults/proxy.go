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
)

// stopPatience bounds how long the end of a test waits for the proxy's goroutines.
const stopPatience = 10 * time.Second

// Proxy stands between one client and one API server. Its methods may be called from any goroutine.
type Proxy struct {
	target    *rest.Config
	authority []byte // PEM
	name      string
	seed      uint64

	ctx      context.Context // ends with the proxy
	cancel   context.CancelFunc
	script   script
	journal  journal
	watches  *watches
	network  *network
	upstream *upstream
	reverse  *httputil.ReverseProxy
	server   *http.Server

	certificate tls.Certificate

	lock   sync.Mutex
	closed bool
	busy   sync.WaitGroup // every goroutine and handler
}

// Option changes how a proxy is made.
type Option func(*Proxy)

// WithName tells the proxies of one test apart: in the log, and in what they draw from the seed.
func WithName(name string) Option { return func(p *Proxy) { p.name = name } }

// WithSeed fixes the seed; FAULTS_SEED is not looked at.
func WithSeed(seed uint64) Option { return func(p *Proxy) { p.seed = seed } }

// New starts a proxy on a loopback port in front of the server of target. Requests reach the server with the
// credentials of target, whatever the client sends. The proxy ends with the test, which fails if anything of it stays.
func New(t testing.TB, target *rest.Config, opts ...Option) *Proxy {
	t.Helper()
	seed, err := processSeed()
	if err != nil {
		t.Fatalf("faults: %v", err)
	}
	p := newProxy(target, append([]Option{WithSeed(seed)}, opts...))
	t.Logf("faults: proxy %q draws from %s=%d", p.name, seedVariable, p.seed)
	if err := p.start(t.Name() + "/" + p.name + "/script"); err != nil {
		t.Fatalf("faults: start proxy %q: %v", p.name, err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("faults: stop proxy %q: %v", p.name, err)
		}
	})
	return p
}

// Start is New for programs, which call Stop. Without WithSeed the seed is 0; FAULTS_SEED is not looked at.
func Start(target *rest.Config, opts ...Option) (*Proxy, error) {
	p := newProxy(target, opts)
	if err := p.start(p.name + "/script"); err != nil {
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

// Config returns a new client config for the proxy, to be used as that of the server: same limits and content type, no
// credentials. Clients made from configs of one proxy share one HTTP/2 connection, as client-go does for any server.
func (p *Proxy) Config() *rest.Config {
	config := rest.AnonymousClientConfig(p.target)
	config.Host = "https://" + p.network.address()
	config.TLSClientConfig = rest.TLSClientConfig{CAData: p.authority}
	config.Dial, config.Proxy = nil, nil
	return config
}

// Inject adds a rule. By default it hits every matching request until removed. Of the rules a request matches, the
// first added that fires decides; a rule that lets it pass (After, Chance, Next used up) leaves it to the others.
func (p *Proxy) Inject(m Match, f Fault, opts ...RuleOption) *Rule { return p.script.add(m, f, opts) }

// Clear removes every rule. Watch faults and outages stay.
func (p *Proxy) Clear() { p.script.clear() }

// FreezeWatches stops the events of matching watch streams, those opened later included: the stream is accepted and
// its header sent, the server's bytes are taken in, nothing is passed on. HTTP/2 pings are still answered.
func (p *Proxy) FreezeWatches(m Match) *WatchFault {
	return p.watches.add(&WatchFault{watches: p.watches, match: m, frozen: true})
}

// SlowWatches passes each event of matching watch streams on lag after it came, those opened later included.
func (p *Proxy) SlowWatches(m Match, lag time.Duration) *WatchFault {
	return p.watches.add(&WatchFault{watches: p.watches, match: m, lag: lag})
}

// CutIdleWatches resets matching watch streams on which nothing was passed on for idle, as a proxy does that bounds the time between two
// reads. A stream that is frozen, too, looks as if the server had nothing to say.
func (p *Proxy) CutIdleWatches(m Match, idle time.Duration) *WatchFault {
	return p.watches.add(&WatchFault{watches: p.watches, match: m, idle: idle})
}

// CutWatches resets the matching watch streams that are open now and tells how many.
func (p *Proxy) CutWatches(m Match) int { return p.watches.cut(m) }

// OpenWatches is the number of matching watch streams whose header was sent and that have not ended.
func (p *Proxy) OpenWatches(m Match) int { return p.watches.count(m) }

// Outage takes the whole server away from the client until Restore, in place of any outage before.
func (p *Proxy) Outage(o Outage) error { return p.network.begin(o) }

// Restore ends an outage; without one it does nothing.
func (p *Proxy) Restore() error { return p.network.restore() }

// CutConnections resets every connection of the client; new ones are accepted.
func (p *Proxy) CutConnections() { p.network.cut() }

// Connections is the number of connections accepted so far, those of a black hole included.
func (p *Proxy) Connections() int {
	p.network.lock.Lock()
	defer p.network.lock.Unlock()
	return p.network.accepted
}

// Requests returns every request seen so far, in order of arrival.
func (p *Proxy) Requests() []Request { return p.journal.requests() }

// Count counts requests by verbs and resources ("" any, comma-separated, resources as in Request.Resource) and status
// code (0: any).
func (p *Proxy) Count(verbs, resources string, code int) int {
	n := 0
	for _, q := range p.Requests() {
		if listed(verbs, q.Verb) && listed(resources, q.Resource) && (code == 0 || code == q.Code) {
			n++
		}
	}
	return n
}

// start lets the rules draw what belongs to purpose.
func (p *Proxy) start(purpose string) error {
	p.script.random = newRandom(p.seed, purpose)
	server, _, err := rest.DefaultServerUrlFor(p.target)
	if err != nil {
		return fmt.Errorf("address of the server: %w", err)
	}
	p.upstream = &upstream{target: p.target, conns: map[net.Conn]struct{}{}}
	transport, err := p.upstream.transport()
	if err != nil {
		return err
	}
	if p.certificate, p.authority, err = selfSigned(time.Now()); err != nil {
		return err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.watches = &watches{spawn: p.spawn, open: map[*stream]struct{}{}}
	p.reverse = newReverse(server, transport, p.watches)
	p.server = p.newServer()
	p.network, err = newNetwork(func(l net.Listener) {
		_ = p.server.ServeTLS(l, "", "") // ends when its listener is closed
	}, p.spawn)
	return err
}

func (p *Proxy) newServer() *http.Server {
	return &http.Server{
		Handler:     http.HandlerFunc(p.serveCounted),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{p.certificate}, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // broken connections are what we are here for
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // called by the accepting goroutine, which is counted itself
				p.busy.Add(1)
			case http.StateClosed, http.StateHijacked:
				p.busy.Done()
			}
		},
	}
}

// enter counts a goroutine that is about to work; false if the proxy has ended.
func (p *Proxy) enter() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.closed {
		return false
	}
	p.busy.Add(1)
	return true
}

func (p *Proxy) serveCounted(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.busy.Done()
	p.serve(w, r)
}

// spawn runs f in a counted goroutine; it reports whether it did, which it does until the proxy has ended.
func (p *Proxy) spawn(f func()) bool {
	if !p.enter() {
		return false
	}
	go func() {
		defer p.busy.Done()
		f()
	}()
	return true
}

// Stop ends everything and waits for it.
func (p *Proxy) Stop() error {
	p.lock.Lock()
	p.closed = true
	p.lock.Unlock()
	p.cancel()
	err := p.network.close()
	_ = p.server.Close() // its listeners and connections are closed already
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
	p.upstream.close()
	return err
}
