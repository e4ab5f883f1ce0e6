package serving

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/version" // kubernetes_build_info

	"minikcm/internal/fakeapi"
)

func TestServingBadInput(t *testing.T) {
	ca := fakeapi.NewCA(t, "servers")
	dir := t.TempDir()
	certA, keyA := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	certB, keyB := filepath.Join(dir, "b.crt"), filepath.Join(dir, "b.key")
	ca.IssueFiles(t, "a", certA, keyA)
	ca.IssueFiles(t, "b", certB, keyB)
	taken := fakeapi.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = taken.Close() }()
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"missing certificate", func(c *Config) { c.TLS.CertFile, c.TLS.KeyFile = "/missing.crt", "/missing.key" }, "--tls-cert-file, --tls-private-key-file: /missing.crt and /missing.key: "},
		{"key of another certificate", func(c *Config) { c.TLS.CertFile, c.TLS.KeyFile = certA, keyB }, "private key does not match"},
		{"missing certificate for a name", func(c *Config) {
			c.TLS.SNI = []cliflag.NamedCertKey{{CertFile: "/missing.crt", KeyFile: "/missing.key"}}
		}, "--tls-sni-cert-key=/missing.crt,/missing.key: "},
		{"directory that cannot be made", func(c *Config) { c.TLS.CertDir = "/dev/null/certs" }, "--cert-dir: "},
		{"missing client CA", func(c *Config) { c.Authentication.ClientCAFile = "/missing.crt" }, "--client-ca-file: "},
		{"missing front proxy CA", func(c *Config) { c.Authentication.RequestHeader.ClientCAFile = "/missing.crt" }, "--requestheader-client-ca-file: "},
		{"missing kubeconfig of authentication", func(c *Config) { c.Authentication.Kubeconfig = "/missing" }, "--authentication-kubeconfig=/missing: "},
		{"missing kubeconfig of authorization", func(c *Config) { c.Authorization.Kubeconfig = "/missing" }, "--authorization-kubeconfig=/missing: "},
		{"port in use", func(c *Config) { c.Port = taken.Addr().(*net.TCPAddr).Port }, "is in use by another process"},
		{"address of another machine", func(c *Config) { c.BindAddress = net.IPv4(192, 0, 2, 1) }, "--bind-address, --secure-port: "},
	} {
		cfg := testServing(t, nil)
		tt.change(&cfg)
		_, err := New(cfg, Deps{})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: New = %v, want one line with %q", tt.name, err, tt.want)
		}
	}
}

func TestServingSharedPort(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.SharePort = true
	first := serve(t, cfg, Deps{})
	cfg.Port = first.listener.Addr().(*net.TCPAddr).Port
	second := fakeapi.Must(New(cfg, Deps{}))
	run(context.Background(), t, second)
	fakeapi.Want(t, "second address", second.Address(), first.Address())
}

func TestServingNothing(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.Port = 0
	cfg.TLS.CertFile = "/missing.crt" // not read
	s := fakeapi.Must(New(cfg, Deps{}))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fakeapi.NoError(t, s.Run(ctx))
	fakeapi.Want(t, "address", s.Address(), "")
}

func TestServingReportsBreakdown(t *testing.T) {
	s := newServer(t, testServing(t, nil), Deps{})
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	_ = s.listener.Close()
	fakeapi.WantError(t, "result of Run", <-done, net.ErrClosed)
}

func TestServingPages(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.Authorization.AlwaysAllowPaths = []string{"*"}
	cfg.AddFlags(&cfg.Flags)
	misc := cfg.Flags.FlagSet("misc")
	misc.String("master", "secret", "")
	misc.Lookup("master").Annotations = map[string][]string{"classified": {"true"}}
	misc.String("root-ca-file", "", "")
	misc.Lookup("root-ca-file").Hidden = true
	cfg.EmulationVersion = "1.37"
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_gauge_of_ours", Help: "x"}))
	s := serve(t, cfg, Deps{Name: "program", Metrics: registry, Configz: map[string]any{"group": 1}})
	for path, texts := range map[string][]string{
		"/configz": {`{"group":1}`},
		"/metrics": {"test_gauge_of_ours 0", "process_start_time_seconds ", "kubernetes_build_info{", "go_goroutines "},
		"/flagz":   {"\nprogram flagz\n", "\nmaster=CLASSIFIED\n", "\nsecure-port=10257\n"},
		"/statusz": {"\nprogram statusz\n", "Started: ", "Up: ", "Go version: go1.", "Binary version: ", "Emulation version: 1.37", " /configz /flagz /healthz /livez /metrics /metrics/slis /readyz /statusz\n"},
	} {
		_, body := request(t, s, "GET", path, "", nil)
		for _, want := range texts {
			fakeapi.WantPart(t, path, body, want)
		}
		if strings.Contains(body, "root-ca-file") {
			t.Errorf("%s shows flags that mean nothing here", path)
		}
	}
	for accept, want := range map[string]int{"text/plain": 200, "*/*": 200, "application/json": 406, "application/json, text/plain;q=0.1": 200} {
		got, _ := request(t, s, "GET", "/statusz", "", nil, "Accept", accept)
		fakeapi.Want(t, "status for "+accept, got, want)
	}
	cfg.Profiling, cfg.Flagz, cfg.Statusz = false, false, false
	off := serve(t, cfg, Deps{})
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v", "/flagz", "/statusz"} {
		got, _ := request(t, off, "GET", path, "", nil)
		fakeapi.Want(t, "status of "+path+", switched off", got, 404)
	}
}

func TestRecovered(t *testing.T) {
	s := serve(t, testServing(t, nil), Deps{})
	s.http.Handler = recovered(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("test") }))
	got, _ := request(t, s, "GET", "/healthz", "", nil)
	fakeapi.Want(t, "status of a handler that panics", got, 500)
}
