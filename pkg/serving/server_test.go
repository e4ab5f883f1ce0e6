package serving

import (
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
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
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
	for range 10 {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
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
func run(t *testing.T, s *Server) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
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
	return run(t, newServer(t, cfg, deps))
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
	r, err := http.NewRequest(method, "https://"+s.Address()+path, strings.NewReader("4"))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
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
		method, path                       string
		anonymous, wrong, none, ok, master int
	}{
		{"GET", "/healthz", 200, 401, 200, 200, 200},
		{"GET", "/healthz?verbose", 200, 401, 200, 200, 200},
		{"GET", "/livez", 200, 401, 200, 200, 200},
		{"GET", "/readyz", 200, 401, 200, 200, 200},
		{"GET", "/healthz/ping", 403, 401, 403, 200, 200},
		{"GET", "/livez/ping", 403, 401, 403, 200, 200},
		{"GET", "/readyz/ping", 403, 401, 403, 200, 200},
		{"GET", "/livez/unknown", 403, 401, 403, 403, 404},
		{"GET", "/metrics", 403, 401, 403, 200, 200},
		{"GET", "/metrics/slis", 403, 401, 403, 200, 200},
		{"GET", "/configz", 403, 401, 403, 200, 200},
		{"GET", "/flagz", 403, 401, 403, 200, 200},
		{"GET", "/statusz", 403, 401, 403, 200, 200},
		{"GET", "/debug/pprof/", 403, 401, 403, 200, 200},
		{"GET", "/debug/flags/v", 403, 401, 403, 406, 406},
		{"PUT", "/debug/flags/v", 403, 401, 403, 200, 200},
		{"GET", "/nothing", 403, 401, 403, 404, 404},
		{"GET", "/", 403, 401, 403, 404, 404},
	} {
		for who, want := range map[string]int{"": tt.anonymous, "wrong": tt.wrong, "none": tt.none, "ok": tt.ok, "root": tt.master} {
			if got, body := request(t, s, tt.method, tt.path, who, nil); got != want {
				t.Errorf("%s %s with token %q = %d, want %d: %.200s", tt.method, tt.path, who, got, want, body)
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
	const requests, strangers = 2000, 8
	for _, tt := range []struct {
		kind    string
		request func(n int) *http.Request
		refused int
	}{
		{"token", func(n int) *http.Request {
			r := httptest.NewRequest("GET", "/livez", nil)
			r.Header.Set("Authorization", fmt.Sprintf("Bearer random-%d", n))
			return r
		}, http.StatusUnauthorized},
		{"access", func(n int) *http.Request { return httptest.NewRequest("GET", fmt.Sprintf("/random/%d", n), nil) }, http.StatusForbidden},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			api := fakeapi.New(t)
			clk := clocktesting.NewFakePassiveClock(time.Now())
			s := newServer(t, testServing(t, api), Deps{Clock: clk})
			var lock sync.Mutex
			codes := map[int]int{}
			ask := func(from, to int) {
				var wg sync.WaitGroup
				for stranger := range strangers {
					wg.Go(func() {
						for n := from + stranger; n < to; n += strangers {
							w := httptest.NewRecorder()
							s.http.Handler.ServeHTTP(w, tt.request(n))
							lock.Lock()
							codes[w.Code]++
							lock.Unlock()
							if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
								t.Error("429 without Retry-After")
							}
						}
					})
				}
				wg.Wait()
			}
			judge := func(sent, share int) {
				t.Helper()
				if got := api.Count(tt.kind); got != share {
					t.Errorf("%d requests caused %d reviews, want %d", sent, got, share)
				}
				if codes[tt.refused] == 0 || codes[http.StatusTooManyRequests] != sent-share {
					t.Errorf("answers by code: %v, want %d of 429 and the rest %d", codes, sent-share, tt.refused)
				}
			}
			ask(0, requests)
			judge(requests, 400)
			clk.SetTime(clk.Now().Add(time.Second))
			ask(requests, requests+1000)
			judge(requests+1000, 600)
			w := httptest.NewRecorder()
			s.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
			if w.Code != http.StatusOK {
				t.Errorf("a probe meanwhile gets %d, want 200", w.Code)
			}
		})
	}
}

func TestServingWhenTheAPIServerFails(t *testing.T) {
	api := fakeapi.New(t)
	s := serve(t, testServing(t, api), Deps{})
	api.Set(func(f *fakeapi.Server) { f.Status = 500 })
	for _, tt := range []struct {
		name, path, token string
		want              int
	}{
		{"health needs no review", "/healthz", "", 200},
		{"token without review", "/healthz", "ok", 401},
		{"access without review", "/metrics", "", 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // reviews are repeated for some seconds
			if got, body := request(t, s, "GET", tt.path, tt.token, nil); got != tt.want {
				t.Errorf("GET %s with token %q = %d, want %d: %s", tt.path, tt.token, got, tt.want, body)
			}
		})
	}
}

func TestServingWithoutAPIServer(t *testing.T) {
	s := serve(t, testServing(t, nil), Deps{})
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 200, "/metrics": 403, "/livez/ping": 403} {
		if got, _ := request(t, s, "GET", path, "any", nil); got != want {
			t.Errorf("GET %s = %d, want %d: tokens are ignored without an API server", path, got, want)
		}
	}
}

func TestServingAlwaysAllowedPaths(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.Authorization.AlwaysAllowPaths = []string{"/metrics", "/livez/*"}
	s := serve(t, cfg, Deps{})
	for path, want := range map[string]int{"/metrics": 200, "/metrics/slis": 403, "/livez/ping": 200, "/healthz": 403} {
		if got, _ := request(t, s, "GET", path, "", nil); got != want {
			t.Errorf("GET %s = %d, want %d", path, got, want)
		}
	}
}

func TestServingLogsToTheLoggerOfRun(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(5)))
	s := newServer(t, testServing(t, nil), Deps{Ready: []Check{{"caches", func() error { return errors.New("not synced") }}}})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	request(t, s, "GET", "/readyz", "", nil)
	if resp, err := http.Get("http://" + s.Address()); err == nil { // no TLS handshake
		_ = resp.Body.Close()
	}
	logged := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
	for _, want := range []string{"Health check fails", "HTTP server"} {
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(logged(), want); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the logger has no %q: %s", want, logged())
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
