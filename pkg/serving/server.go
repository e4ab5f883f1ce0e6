package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Deps are what the endpoint shows, and works with.
type Deps struct {
	// Name is the program's: on pages, in a certificate that is made, and in requests to the API server.
	Name string
	// Metrics are served together with those of the libraries; nil: only those are.
	Metrics prometheus.Gatherer
	// Configz is served as JSON by /configz: configurations by API group.
	Configz map[string]any
	// Clock measures the rate of questions to the API server; nil is the real one.
	Clock clock.PassiveClock
	// Live are the checks of /livez and /healthz, Ready those of /readyz.
	Live, Ready []Check
	// Listener replaces the listener at the address and port of the configuration. nil opens a listener. [Server.Run] closes Listener.
	Listener net.Listener
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

// Server is the HTTPS endpoint. Its port is bound when [New] returns, and it answers once Run is called.
type Server struct {
	listener net.Listener // nil: there is no endpoint
	http     *http.Server
	certs    *certificates
	lookup   *clusterAuth // nil: nothing is looked up in the cluster
	unasked  []string     // flags without which nobody is asked about clients
}

// New binds the port, loads certificates and kubeconfig files, and reports what is wrong with them, naming the flag. It asks nothing over
// the network.
func New(cfg Config, deps Deps) (*Server, error) {
	s := &Server{}
	if cfg.Port == 0 && deps.Listener == nil {
		return s, nil
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	auth, err := newAuth(cfg, deps)
	if err != nil {
		return nil, err
	}
	s.lookup, s.unasked = auth.lookup, auth.unasked
	if s.certs, err = newCertificates(cfg.TLS, owner{deps.Name, cfg.BindAddress}, auth.clientCAs); err != nil {
		return nil, err
	}
	if s.listener = deps.Listener; s.listener == nil {
		if s.listener, err = listen(cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Profiling && cfg.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	s.http = &http.Server{
		Handler:           recovered(auth.protect(newMux(cfg, deps))),
		TLSConfig:         s.certs.tls,
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             http2Config(cfg.TLS),
		Protocols:         protocols(cfg.TLS),
	}
	return s, nil
}

// Address is where the server listens, host:port; empty without an endpoint.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends and lets requests in flight finish for a moment. Informers of the cluster's authorities that sleep
// end up to a minute after it has returned. An error means that serving broke down, not that it was stopped.
func (s *Server) Run(ctx context.Context) error {
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
	s.http.ErrorLog = quietLog(log)
	s.http.BaseContext = func(net.Listener) context.Context { return klog.NewContext(context.Background(), log) }
	served := make(chan error, 1)
	go func() { served <- s.http.ServeTLS(s.listener, "", "") }()
	log.Info("Serving", "address", s.Address())
	if len(s.unasked) > 0 {
		log.Info("No API server is asked about clients: tokens are refused, or only --authorization-always-allow-paths are served", "missing", s.unasked)
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", s.Address(), err)
	case <-ctx.Done():
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), serverDrain)
	defer stop()
	if s.http.Shutdown(drain) != nil {
		_ = s.http.Close() // what is still open has had its time
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", s.Address(), err)
	}
	return nil
}

func listen(cfg Config) (net.Listener, error) {
	address := net.JoinHostPort(cfg.BindAddress.String(), strconv.Itoa(cfg.Port))
	lc := net.ListenConfig{Control: socketOptions(cfg.SharePort, cfg.ShareAddresses)}
	l, err := lc.Listen(context.Background(), "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--secure-port: %s is in use by another process; choose another port, or 0 to serve nothing", address)
	case err != nil:
		return nil, fmt.Errorf("--bind-address, --secure-port: %w", err)
	}
	return l, nil
}
