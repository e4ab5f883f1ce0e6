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

// Deps are the contents and dependencies of the endpoint.
type Deps struct {
	// Name is the name of the program on pages, in a self-signed certificate and in requests to the API server.
	Name string
	// Metrics are served together with those of the libraries.
	Metrics prometheus.Gatherer
	// Configz is served as JSON by /configz: configurations by API group.
	Configz map[string]any
	// Clock measures the rate of reviews.
	Clock clock.PassiveClock
	// Live are the checks of /livez and /healthz, Ready those of /readyz.
	Live, Ready []Check
}

const (
	// As k8s.io/apiserver v0.37: idle connections are closed, and so are connections that send headers slowly.
	idleTimeout       = 90 * time.Second
	readHeaderTimeout = 32 * time.Second
	maxHeaderBytes    = 1 << 20
	// serverDrain is the time that requests have to finish when the process stops. Serving stops last, so
	// every shutdown may take this time.
	serverDrain = 500 * time.Millisecond
)

// Server is the HTTPS endpoint. Its port is bound when [New] returns, and [Server.Run] serves requests.
type Server struct {
	listener net.Listener // nil means no endpoint
	http     *http.Server
	certs    *certificates
	auth     *auth
}

// New binds the port and loads certificates and kubeconfig files. Errors name the flag. It sends no request.
func New(cfg Config, deps Deps) (*Server, error) {
	s := &Server{}
	if cfg.Port == 0 {
		return s, nil
	}
	var err error
	if s.auth, err = newAuth(cfg, deps); err != nil {
		return nil, err
	}
	if s.certs, err = newCertificates(cfg.TLS, owner{deps.Name, cfg.BindAddress}, s.auth.clientCAs); err != nil {
		return nil, err
	}
	if s.listener, err = listen(cfg); err != nil {
		return nil, err
	}
	if cfg.Profiling && cfg.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!cfg.TLS.DisableHTTP2) // or the server would reject cipher suites that HTTP/2 cannot use
	s.http = &http.Server{
		Handler:           recovered(s.auth.protect(newMux(cfg, deps))),
		TLSConfig:         s.certs.tls,
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             http2Config(cfg.TLS),
		Protocols:         protocols,
	}
	return s, nil
}

// Address returns host:port, or an empty string without an endpoint.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends, and gives requests in flight serverDrain to finish. Sleeping informers of the
// cluster's authorities end up to a minute after Run has returned. Run returns an error only if serving failed
// before ctx ended.
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
	if s.auth.headers != nil {
		helpers.Go(func() { s.auth.headers.Run(ctx, 1) })
	}
	s.http.ErrorLog = quietLog(log)
	s.http.BaseContext = func(net.Listener) context.Context { return klog.NewContext(context.Background(), log) }
	served := make(chan error, 1)
	go func() { served <- s.http.ServeTLS(s.listener, "", "") }()
	log.Info("Serving", "address", s.Address())
	if len(s.auth.missing) > 0 {
		log.Info("Serving without reviews of clients: without --authentication-kubeconfig tokens are ignored, "+
			"without --authorization-kubeconfig only --authorization-always-allow-paths are served", "missing", s.auth.missing)
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", s.Address(), err)
	case <-ctx.Done():
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), serverDrain)
	defer stop()
	if s.http.Shutdown(drain) != nil {
		_ = s.http.Close()
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
