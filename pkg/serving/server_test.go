package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
)

// testServing returns the default endpoint with all pages. api reviews clients and may be nil.
func testServing(t *testing.T, api *fakeapi.Server) Config {
	t.Helper()
	cfg := DefaultConfig()
	cfg.BindAddress = net.IPv4(127, 0, 0, 1)
	cfg.Flagz, cfg.Statusz = true, true
	if api != nil {
		file := api.Kubeconfig(t, nil)
		cfg.Authentication.Kubeconfig, cfg.Authorization.Kubeconfig = file, file
		cfg.Authentication.SkipLookup = true
	}
	return cfg
}

// newServer builds a server on a free port.
func newServer(t *testing.T, cfg Config, deps Deps) *Server {
	t.Helper()
	deps.Clock = cmp.Or[clock.PassiveClock](deps.Clock, clock.RealClock{})
	deps.Metrics = cmp.Or[prometheus.Gatherer](deps.Metrics, prometheus.NewRegistry())
	for range 10 {
		free := fakeapi.Must(net.Listen("tcp", "127.0.0.1:0"))
		cfg.Port = free.Addr().(*net.TCPAddr).Port
		_ = free.Close()
		s, err := New(cfg, deps)
		if err == nil {
			t.Cleanup(func() { _ = s.listener.Close() })
			return s
		}
		if !strings.Contains(err.Error(), "in use") { // by another test
			t.Fatal(err)
		}
	}
	t.Fatal("no free port")
	return nil
}

// run runs a server until the test ends, and fails the test if the server fails.
func run(ctx context.Context, t *testing.T, s *Server) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

// serve runs a server of cfg on a free port until the test ends.
func serve(t *testing.T, cfg Config, deps Deps) *Server {
	t.Helper()
	return run(context.Background(), t, newServer(t, cfg, deps))
}

// request returns the status and the body of a response. token and cert may be empty.
func request(t *testing.T, s *Server, method, path, token string, cert *tls.Certificate, headers ...string) (int, string) {
	t.Helper()
	tlsConfig := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		// With tls.Config.Certificates the client would not send a certificate that the server did not request.
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	r := fakeapi.Must(http.NewRequest(method, "https://"+s.Address()+path, strings.NewReader("4")))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response := fakeapi.Must(client.Do(r))
	defer func() { _ = response.Body.Close() }()
	body := fakeapi.Must(io.ReadAll(response.Body))
	return response.StatusCode, string(body)
}

// The status of each path by client, with an API server that reviews clients.
func TestServingPaths(t *testing.T) {
	api := fakeapi.New(t)
	api.Set(func(f *fakeapi.Server) {
		f.Tokens["none"] = authenticationv1.UserInfo{Username: "poor"}
		f.Tokens["ok"] = authenticationv1.UserInfo{Username: "scraper"}
		f.Tokens["root"] = authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}
		for _, path := range []string{
			"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/debug/flags/v",
			"/livez/ping", "/healthz/ping", "/readyz/ping", "/nothing", "/",
		} {
			f.Allowed = append(f.Allowed, "scraper get "+path)
		}
		f.Allowed = append(f.Allowed, "scraper put /debug/flags/v")
	})
	s := serve(t, testServing(t, api), Deps{})
	for _, tt := range []struct {
		method, paths                      string
		anonymous, wrong, none, ok, master int
	}{
		{"GET", "/healthz /healthz?verbose /livez /readyz", 200, 401, 200, 200, 200},
		{"GET", "/healthz/ping /livez/ping /readyz/ping", 403, 401, 403, 200, 200},
		{"GET", "/metrics /metrics/slis /configz /flagz /statusz /debug/pprof/", 403, 401, 403, 200, 200},
		{"GET", "/debug/flags/v", 403, 401, 403, 406, 406},
		{"PUT", "/debug/flags/v", 403, 401, 403, 200, 200},
		{"GET", "/nothing /", 403, 401, 403, 404, 404},
		{"GET", "/livez/unknown", 403, 401, 403, 403, 404},
	} {
		for path := range strings.FieldsSeq(tt.paths) {
			for who, want := range map[string]int{"": tt.anonymous, "wrong": tt.wrong, "none": tt.none, "ok": tt.ok, "root": tt.master} {
				if got, body := request(t, s, tt.method, path, who, nil); got != want {
					t.Errorf("%s %s with token %q = %d, want %d: %.200s", tt.method, path, who, got, want, body)
				}
			}
		}
	}
}

func TestServingCachesReviews(t *testing.T) {
	api := fakeapi.New(t)
	api.Set(func(f *fakeapi.Server) { f.Tokens["none"] = authenticationv1.UserInfo{Username: "poor"} })
	s := serve(t, testServing(t, api), Deps{})
	for range 5 {
		if got, _ := request(t, s, "GET", "/metrics", "none", nil); got != 403 {
			t.Fatalf("GET /metrics = %d, want 403", got)
		}
	}
	if tokens, accesses := api.Count("token"), api.Count("access"); tokens != 1 || accesses != 1 {
		t.Errorf("5 equal requests caused %d token reviews and %d access reviews, want one each", tokens, accesses)
	}
}

// Every client of the port can send new tokens and paths.
func TestServingLimitsReviews(t *testing.T) {
	const strangers = 8
	for _, tt := range []struct {
		kind     string
		request  func(n int) *http.Request
		rejected int
	}{
		{"token", func(n int) *http.Request {
			r := httptest.NewRequest("GET", "/livez", nil)
			r.Header.Set("Authorization", fmt.Sprintf("Bearer random-%d", n))
			return r
		}, http.StatusUnauthorized},
		{"access", func(n int) *http.Request { return httptest.NewRequest("GET", fmt.Sprintf("/random/%d", n), nil) }, http.StatusForbidden},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			api, clk := fakeapi.New(t), clocktesting.NewFakePassiveClock(time.Now())
			s := newServer(t, testServing(t, api), Deps{Clock: clk})
			rejected, limited, sent := atomic.Int64{}, atomic.Int64{}, 0
			for _, part := range []struct{ requests, reviews int }{{2000, 400}, {1000, 600}} { // reviews in all
				var wg sync.WaitGroup
				for stranger := range strangers {
					wg.Go(func() {
						for n := sent + stranger; n < sent+part.requests; n += strangers {
							w := httptest.NewRecorder()
							s.http.Handler.ServeHTTP(w, tt.request(n))
							switch {
							case w.Code == tt.rejected:
								rejected.Add(1)
							case w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "":
								limited.Add(1)
							}
						}
					})
				}
				wg.Wait()
				sent += part.requests
				if got := api.Count(tt.kind); got != part.reviews || int(rejected.Load()) != part.reviews || int(limited.Load()) != sent-part.reviews {
					t.Errorf("%d requests: %d reviews, %d rejected, %d limited; want %d reviews", sent, got, rejected.Load(), limited.Load(), part.reviews)
				}
				clk.SetTime(clk.Now().Add(time.Second))
			}
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
			fakeapi.Want(t, "status of a probe meanwhile", w.Code, http.StatusOK)
		})
	}
}

func TestServingWithoutReviews(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1") // no token
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	always := testServing(t, nil)
	always.Authorization.AlwaysAllowPaths = []string{"/metrics", "/livez/*"}
	for _, tt := range []struct {
		name   string
		cfg    Config
		status int               // of the API server; 0: there is no API server
		codes  map[[2]string]int // by path and token
	}{
		{"API server is broken", Config{}, 500, map[[2]string]int{{"/healthz", ""}: 200, {"/healthz", "ok"}: 401, {"/metrics", ""}: 500}},
		{"API server forbids reviews", Config{}, 403, map[[2]string]int{{"/healthz", ""}: 200, {"/healthz", "ok"}: 401, {"/metrics", ""}: 500}},
		{"without an API server tokens are ignored", testServing(t, nil), 0, map[[2]string]int{
			{"/healthz", "any"}: 200, {"/livez", "any"}: 200, {"/readyz", "any"}: 200, {"/metrics", "any"}: 403, {"/livez/ping", "any"}: 403}},
		{"paths that are always allowed", always, 0, map[[2]string]int{
			{"/metrics", ""}: 200, {"/metrics/slis", ""}: 403, {"/livez/ping", ""}: 200, {"/healthz", ""}: 403}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // reviews are repeated for some seconds
			if tt.status != 0 {
				api := fakeapi.New(t)
				tt.cfg = testServing(t, api)
				api.Set(func(f *fakeapi.Server) { f.Status = tt.status })
			}
			s := serve(t, tt.cfg, Deps{})
			for r, want := range tt.codes {
				if got, body := request(t, s, "GET", r[0], r[1], nil); got != want {
					t.Errorf("GET %s with token %q = %d, want %d: %s", r[0], r[1], got, want, body)
				}
			}
		})
	}
}

func TestServingLogsToTheLoggerOfRun(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(5)))
	s := newServer(t, testServing(t, nil), Deps{Ready: []Check{{"caches", func() error { return errors.New("not synced") }}}})
	run(klog.NewContext(context.Background(), logger), t, s)
	got, _ := request(t, s, "GET", "/readyz", "", nil)
	fakeapi.Want(t, "status of /readyz with a failing check", got, 500)
	if resp, err := http.Get("http://" + s.Address()); err == nil { // no TLS handshake
		_ = resp.Body.Close()
	}
	fakeapi.Eventually(t, func() error {
		logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if !strings.Contains(logged, "Health check fails") || !strings.Contains(logged, "HTTP server") {
			return fmt.Errorf("logged %s", logged)
		}
		return nil
	})
}
