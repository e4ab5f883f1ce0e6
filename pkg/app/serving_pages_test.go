package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/pkg/internal/fakeapi"
)

func TestServingBadInput(t *testing.T) {
	ca := fakeapi.NewCA(t, "servers")
	dir := t.TempDir()
	certA, keyA := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	certB, keyB := filepath.Join(dir, "b.crt"), filepath.Join(dir, "b.key")
	ca.IssueFiles(t, "a", certA, keyA)
	ca.IssueFiles(t, "b", certB, keyB)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, tt := range []struct {
		name   string
		change func(*ServingConfig)
		want   string
	}{
		{"missing certificate", func(c *ServingConfig) { c.TLS.CertFile, c.TLS.KeyFile = "/missing.crt", "/missing.key" }, "--tls-cert-file, --tls-private-key-file: /missing.crt and /missing.key: "},
		{"key of another certificate", func(c *ServingConfig) { c.TLS.CertFile, c.TLS.KeyFile = certA, keyB }, "private key does not match"},
		{"missing certificate for a name", func(c *ServingConfig) {
			c.TLS.SNI = []cliflag.NamedCertKey{{CertFile: "/missing.crt", KeyFile: "/missing.key"}}
		}, "--tls-sni-cert-key=/missing.crt,/missing.key: "},
		{"directory that cannot be made", func(c *ServingConfig) { c.TLS.CertDir = "/dev/null/certs" }, "--cert-dir: "},
		{"missing client CA", func(c *ServingConfig) { c.Authentication.ClientCAFile = "/missing.crt" }, "--client-ca-file: "},
		{"missing front proxy CA", func(c *ServingConfig) { c.Authentication.RequestHeader.ClientCAFile = "/missing.crt" }, "--requestheader-client-ca-file: "},
		{"missing kubeconfig of authentication", func(c *ServingConfig) { c.Authentication.Kubeconfig = "/missing" }, "--authentication-kubeconfig=/missing: "},
		{"missing kubeconfig of authorization", func(c *ServingConfig) { c.Authorization.Kubeconfig = "/missing" }, "--authorization-kubeconfig=/missing: "},
		{"port in use", func(c *ServingConfig) { c.Address = taken.Addr().String() }, "is in use by another process"},
		{"address of another machine", func(c *ServingConfig) { c.Address = "192.0.2.1:10257" }, "--bind-address, --secure-port: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testServing(t, nil)
			tt.change(&cfg)
			_, err := newServer(cfg, serverDeps{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("newServer = %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestServingSharedPort(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.SharePort = true
	first := serve(t, cfg, serverDeps{})
	cfg.Address = first.address()
	second := serve(t, cfg, serverDeps{})
	if first.address() != second.address() {
		t.Errorf("listening on %s and %s, want the same", first.address(), second.address())
	}
}

func TestServingNothing(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.Port = 0
	cfg.TLS.CertFile = "/missing.crt" // not even looked at
	s, err := newServer(cfg, serverDeps{})
	if err != nil {
		t.Fatal(err)
	}
	s.addLive("x", func() error { return nil })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	cancel()
	if err := <-done; err != nil || s.address() != "" {
		t.Errorf("run = %v, address %q, want nil and none", err, s.address())
	}
}

func TestServingReportsBreakdown(t *testing.T) {
	s, err := newServer(testServing(t, nil), serverDeps{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.run(context.Background()) }()
	_ = s.listener.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("run = %v, want the reason why the listener broke", err)
	}
}

func TestServingMergesMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_gauge_of_ours", Help: "x"})
	registry.MustRegister(own)
	s := serve(t, allowAll(testServing(t, nil)), serverDeps{metrics: registry, configz: map[string]int{"a": 1}})
	_, body := request(t, s, "GET", "/metrics", "", nil)
	for _, want := range []string{"test_gauge_of_ours 0", "process_start_time_seconds ", "kubernetes_build_info{", "go_goroutines "} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if _, body := request(t, s, "GET", "/configz", "", nil); body != `{"kubecontrollermanager.config.k8s.io":{"a":1}}` {
		t.Errorf("/configz = %s", body)
	}
}

func TestServingPages(t *testing.T) {
	cfg := allowAll(testServing(t, nil))
	secret := cfg.Flags.FlagSet("misc").Lookup("master")
	secret.Annotations = map[string][]string{"classified": {"true"}}
	s := serve(t, cfg, serverDeps{})
	_, flags := request(t, s, "GET", "/flagz", "", nil)
	for _, want := range []string{"\nconcurrent-replicaset-syncs=5\n", "\nmaster=CLASSIFIED\n", "\nleader-elect=true\n"} {
		if !strings.Contains(flags, want) {
			t.Errorf("/flagz lacks %q", want)
		}
	}
	if strings.Contains(flags, "root-ca-file") {
		t.Error("/flagz shows flags that mean nothing here")
	}
	_, status := request(t, s, "GET", "/statusz", "", nil)
	for _, want := range []string{"Started: ", "Up: ", "Go version: go1.", "Binary version: ", "Emulation version: 1.37", " /configz /flagz /healthz /livez /metrics /metrics/slis /readyz /statusz\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("/statusz lacks %q:\n%s", want, status)
		}
	}
	for accept, want := range map[string]int{"text/plain": 200, "*/*": 200, "application/json": 406, "application/json, text/plain;q=0.1": 200} {
		if got, _ := request(t, s, "GET", "/statusz", "", nil, "Accept", accept); got != want {
			t.Errorf("GET /statusz, Accept: %s = %d, want %d", accept, got, want)
		}
	}
	cfg.Profiling, cfg.Flagz, cfg.Statusz = false, false, false
	off := serve(t, cfg, serverDeps{})
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v", "/flagz", "/statusz"} {
		if got, _ := request(t, off, "GET", path, "", nil); got != 404 {
			t.Errorf("GET %s, switched off = %d, want 404", path, got)
		}
	}
}

func TestRecovered(t *testing.T) {
	s := serve(t, testServing(t, nil), serverDeps{})
	s.http.Handler = recovered(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("test") }))
	if got, _ := request(t, s, "GET", "/healthz", "", nil); got != 500 {
		t.Errorf("a handler that panics answers %d, want 500", got)
	}
	s.http.Handler = recovered(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	if answer, err := client.Get("https://" + s.address() + "/healthz"); err == nil {
		t.Errorf("a handler that aborts answers %s, want a dropped connection", answer.Status)
	}
}

func allowAll(cfg ServingConfig) ServingConfig {
	cfg.Authorization.AlwaysAllowPaths = []string{"*"}
	return cfg
}
