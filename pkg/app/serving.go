package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// ServingConfig says what the HTTPS endpoint offers, and to whom.
type ServingConfig struct {
	// Address is host:port to listen on. Port is its port; 0 means there is no endpoint at all.
	Address string
	Port    int
	// SharePort and ShareAddresses are SO_REUSEPORT and SO_REUSEADDR.
	SharePort      bool
	ShareAddresses bool

	TLS            TLSConfig
	Authentication AuthenticationOptions
	Authorization  AuthorizationOptions
	// ReviewRetry is how often a question to the API server is repeated if it had a moment of weakness.
	ReviewRetry wait.Backoff

	Profiling           bool
	ContentionProfiling bool
	Flagz               bool // serve /flagz
	Statusz             bool // serve /statusz

	// Flags are shown by /flagz.
	Flags cliflag.NamedFlagSets
	// EmulationVersion is shown by /statusz.
	EmulationVersion string
}

// serverDeps are what the server shows.
type serverDeps struct {
	// metrics are served together with those of the libraries.
	metrics prometheus.Gatherer
	// configz is served as JSON by /configz.
	configz any
	// clock is what the rate of questions to the API server is measured with; nil is the real one.
	clock clock.PassiveClock
	// listener replaces the one the server would open; for tests.
	listener net.Listener
}

const (
	// As k8s.io/apiserver v0.37: idle connections go, and slow senders of headers are cut off.
	idleTimeout       = 90 * time.Second
	readHeaderTimeout = 32 * time.Second
	maxHeaderBytes    = 1 << 20
	// serverDrain is how long requests may finish when the process stops. Serving stops last, so this is the tail of every
	// shutdown.
	serverDrain = 500 * time.Millisecond
)

// server is the HTTPS endpoint. Its port is bound when newServer returns, and it answers once run is called.
type server struct {
	listener net.Listener // nil: there is no endpoint
	http     *http.Server
	certs    *certificates
	lookup   *clusterAuth // nil: nothing is looked up in the cluster
	live     *checks
	ready    *checks
}

// newServer binds the port, loads certificates and kubeconfig files, and reports what is wrong with them. It asks nothing
// over the network. Liveness and readiness checks may be added at any time, also while it runs.
func newServer(cfg ServingConfig, deps serverDeps) (*server, error) {
	s := &server{live: newChecks(), ready: newChecks()}
	if cfg.Port == 0 && deps.listener == nil {
		return s, nil
	}
	if deps.clock == nil {
		deps.clock = clock.RealClock{}
	}
	auth, err := newAuth(cfg.Authentication, cfg.Authorization, cfg.ReviewRetry, deps.clock)
	if err != nil {
		return nil, err
	}
	s.lookup = auth.lookup
	host, _, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("--bind-address: %w", err)
	}
	if s.certs, err = newCertificates(cfg.TLS, host, auth.clientCAs); err != nil {
		return nil, err
	}
	if s.listener = deps.listener; s.listener == nil {
		if s.listener, err = listen(cfg); err != nil {
			return nil, err
		}
	}
	if cfg.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	s.http = &http.Server{
		Handler:           recovered(auth.protect(newMux(cfg, deps, s.live, s.ready))),
		TLSConfig:         s.certs.tls,
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             http2Config(cfg.TLS),
		Protocols:         protocols(cfg.TLS),
		ErrorLog:          quietLog(),
	}
	return s, nil
}

// addLive adds a check to /livez and /healthz. A check of the same name is replaced. It must not block.
func (s *server) addLive(name string, check func() error) { s.live.add(name, check) }

// addReady adds a check to /readyz. A check of the same name is replaced. It must not block.
func (s *server) addReady(name string, check func() error) { s.ready.add(name, check) }

// address is where the server listens, host:port; empty without an endpoint.
func (s *server) address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// run serves until ctx ends, lets requests in flight finish for a moment, and returns when every goroutine has ended. An
// error means that serving broke down, not that it was stopped.
func (s *server) run(ctx context.Context) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	log := klog.FromContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	s.certs.start(ctx, &helpers)
	if s.lookup != nil {
		helpers.Go(func() { s.lookup.run(ctx) })
	}
	served := make(chan error, 1)
	go func() { served <- s.http.ServeTLS(s.listener, "", "") }()
	log.Info("Serving", "address", s.address())
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", s.address(), err)
	case <-ctx.Done():
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), serverDrain)
	defer stop()
	if s.http.Shutdown(drain) != nil {
		_ = s.http.Close() // what is still open has had its time
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", s.address(), err)
	}
	return nil
}

func listen(cfg ServingConfig) (net.Listener, error) {
	lc := net.ListenConfig{Control: socketOptions(cfg.SharePort, cfg.ShareAddresses)}
	l, err := lc.Listen(context.Background(), "tcp", cfg.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--secure-port: %s is in use by another process; choose another port, or 0 to serve nothing", cfg.Address)
	case err != nil:
		return nil, fmt.Errorf("--bind-address, --secure-port: %w", err)
	}
	return l, nil
}
