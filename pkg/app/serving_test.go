package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
)

// testServing is the default endpoint on a free port, asking api who and whether; nil api is nobody.
func testServing(t *testing.T, api *fakeAPI) ServingConfig {
	t.Helper()
	o := NewOptions()
	o.Flags()
	cfg := o.servingConfig()
	cfg.Address = "127.0.0.1:0"
	cfg.ReviewRetry.Steps = 1
	if api != nil {
		file := api.kubeconfig(t, nil)
		cfg.Authentication.Kubeconfig, cfg.Authorization.Kubeconfig = file, file
		cfg.Authentication.SkipLookup = true
	}
	return cfg
}

// serve runs a server until the test ends and fails the test if it breaks down.
func serve(t *testing.T, cfg ServingConfig, deps serverDeps) *server {
	t.Helper()
	s, err := newServer(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

// request sends one request and returns its status and body. token and cert may be empty.
func request(t *testing.T, s *server, method, path, token string, cert *tls.Certificate, headers ...string) (int, string) {
	t.Helper()
	tlsConfig := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		// Certificates would hold back one that the server did not ask for.
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	r, err := http.NewRequest(method, "https://"+s.address()+path, strings.NewReader("4"))
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

// The table of who gets what (spec D38), as far as it is not about a real API server.
func TestServingPaths(t *testing.T) {
	api := newFakeAPI(t)
	api.set(func(f *fakeAPI) {
		f.tokens["none"] = authenticationv1.UserInfo{Username: "poor"}
		f.tokens["ok"] = authenticationv1.UserInfo{Username: "scraper"}
		f.tokens["root"] = authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}
		for _, path := range []string{"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/debug/flags/v", "/livez/ping", "/healthz/ping", "/readyz/ping", "/nothing", "/"} {
			f.allowed = append(f.allowed, "scraper get "+path)
		}
		f.allowed = append(f.allowed, "scraper put /debug/flags/v")
	})
	s := serve(t, testServing(t, api), serverDeps{})
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

func TestServingRemembersAnswers(t *testing.T) {
	api := newFakeAPI(t)
	api.set(func(f *fakeAPI) { f.tokens["none"] = authenticationv1.UserInfo{Username: "poor"} })
	s := serve(t, testServing(t, api), serverDeps{})
	for range 5 {
		if got, _ := request(t, s, "GET", "/metrics", "none", nil); got != 403 {
			t.Fatalf("GET /metrics = %d, want 403", got)
		}
	}
	if tokens, accesses := api.count("token"), api.count("access"); tokens != 1 || accesses != 1 {
		t.Errorf("5 equal requests asked about the token %d times and about access %d times, want once each", tokens, accesses)
	}
}

func TestServingWhenTheAPIServerFails(t *testing.T) {
	api := newFakeAPI(t)
	s := serve(t, testServing(t, api), serverDeps{})
	api.set(func(f *fakeAPI) { f.status = 500 })
	for _, tt := range []struct {
		name, path, token string
		want              int
	}{
		{"health needs nobody", "/healthz", "", 200},
		{"a token that cannot be checked is not accepted", "/healthz", "ok", 401},
		{"access that cannot be checked is not granted", "/metrics", "", 500},
	} {
		if got, body := request(t, s, "GET", tt.path, tt.token, nil); got != tt.want {
			t.Errorf("%s: GET %s with token %q = %d, want %d: %s", tt.name, tt.path, tt.token, got, tt.want, body)
		}
	}
}

func TestServingWithoutAPIServer(t *testing.T) {
	s := serve(t, testServing(t, nil), serverDeps{})
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 200, "/metrics": 403, "/livez/ping": 403} {
		if got, _ := request(t, s, "GET", path, "any", nil); got != want {
			t.Errorf("GET %s = %d, want %d: nobody can be asked about tokens, so they are not looked at", path, got, want)
		}
	}
}

func TestServingAlwaysAllowedPaths(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.Authorization.AlwaysAllowPaths = []string{"/metrics", "/livez/*"}
	s := serve(t, cfg, serverDeps{})
	for path, want := range map[string]int{"/metrics": 200, "/metrics/slis": 403, "/livez/ping": 200, "/healthz": 403} {
		if got, _ := request(t, s, "GET", path, "", nil); got != want {
			t.Errorf("GET %s = %d, want %d", path, got, want)
		}
	}
}

func TestServingClientCertificates(t *testing.T) {
	ca, other := newCA(t, "clients"), newCA(t, "strangers")
	proxies := newCA(t, "proxies")
	cfg := testServing(t, nil)
	cfg.Authentication.ClientCAFile = writeFile(t, "ca.crt", ca.pem)
	cfg.Authentication.RequestHeader.ClientCAFile = writeFile(t, "proxy.crt", proxies.pem)
	cfg.Authentication.RequestHeader.AllowedNames = []string{"front-proxy"}
	s := serve(t, cfg, serverDeps{})
	asMaster := []string{"X-Remote-User", "somebody", "X-Remote-Group", "system:masters"}
	for _, tt := range []struct {
		name    string
		cert    *tls.Certificate
		headers []string
		want    int
	}{
		{"organization is the group", ca.issue(t, "admin", "system:masters"), nil, 200},
		{"another organization is not", ca.issue(t, "user", "dev"), nil, 403},
		{"a stranger's certificate is wrong", other.issue(t, "admin", "system:masters"), nil, 401},
		{"the front proxy speaks for others", proxies.issue(t, "front-proxy"), asMaster, 200},
		{"a proxy of another name does not", proxies.issue(t, "someone"), asMaster, 401},
		{"headers without a proxy's certificate say nothing", nil, asMaster, 403},
		{"a client's headers say nothing", ca.issue(t, "user", "dev"), asMaster, 403},
	} {
		if got, body := request(t, s, "GET", "/metrics", "", tt.cert, tt.headers...); got != tt.want {
			t.Errorf("%s: %d, want %d: %.200s", tt.name, got, tt.want, body)
		}
	}
}

func TestServingReadsClientCAFromCluster(t *testing.T) {
	ca, proxies, api := newCA(t, "clients"), newCA(t, "proxies"), newFakeAPI(t)
	cm := &corev1.ConfigMap{Data: map[string]string{
		"client-ca-file":                     string(ca.pem),
		"requestheader-client-ca-file":       string(proxies.pem),
		"requestheader-allowed-names":        `["front-proxy"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}}
	cm.Namespace, cm.Name, cm.ResourceVersion = authConfigMapNamespace, authConfigMapName, "1"
	for _, tt := range []struct {
		name   string
		change func(*fakeAPI)
		want   int
	}{
		{"published", func(f *fakeAPI) { f.configMap = cm }, 200},
		{"missing", func(f *fakeAPI) { f.configMap = nil }, 403},
		{"forbidden", func(f *fakeAPI) { f.status = 403 }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api.set(func(f *fakeAPI) { f.status = 0; tt.change(f) })
			cfg := testServing(t, api)
			cfg.Authentication.SkipLookup = false
			s := serve(t, cfg, serverDeps{})
			if got, _ := request(t, s, "GET", "/healthz", "", nil); got != 200 {
				t.Errorf("GET /healthz = %d, want 200 whatever the ConfigMap is like", got)
			}
			if tt.want == 0 {
				return
			}
			admin, proxy := ca.issue(t, "admin", "system:masters"), proxies.issue(t, "front-proxy")
			eventually(t, func() error {
				got, _ := request(t, s, "GET", "/metrics", "", admin)
				asProxy, _ := request(t, s, "GET", "/metrics", "", proxy, "X-Remote-User", "x", "X-Remote-Group", "system:masters")
				if tt.want == 200 && (got != 200 || asProxy != 200) || tt.want == 403 && got == 200 {
					return fmt.Errorf("GET /metrics = %d with the client's certificate, %d through the proxy", got, asProxy)
				}
				return nil
			})
		})
	}
}

func TestServingReloadsCertificate(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca := newCA(t, "servers")
	ca.issueFiles(t, "first", certFile, keyFile)
	cfg := testServing(t, nil)
	cfg.TLS.CertFile, cfg.TLS.KeyFile = certFile, keyFile
	s := serve(t, cfg, serverDeps{})
	if got := servedName(t, s, ""); got != "first" {
		t.Fatalf("served certificate of %q, want first", got)
	}
	ca.issueFiles(t, "second", certFile, keyFile)
	eventually(t, func() error {
		if got := servedName(t, s, ""); got != "second" {
			return fmt.Errorf("served certificate of %q, want second", got)
		}
		return nil
	})
}

func TestServingCertificates(t *testing.T) {
	t.Run("made in memory", func(t *testing.T) {
		s := serve(t, testServing(t, nil), serverDeps{})
		cert := served(t, s, "")
		for _, host := range []string{"localhost", "127.0.0.1"} {
			if err := cert.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("written to the directory and used again", func(t *testing.T) {
		cfg := testServing(t, nil)
		cfg.TLS.CertDir = t.TempDir()
		first := served(t, serve(t, cfg, serverDeps{}), "")
		second := served(t, serve(t, cfg, serverDeps{}), "")
		if !first.Equal(second) {
			t.Error("a second start made another certificate")
		}
		if info, err := os.Stat(filepath.Join(cfg.TLS.CertDir, "kube-controller-manager.key")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("key file: %v, %v, want mode 0600", info, err)
		}
	})
	t.Run("chosen by the name the client asks for", func(t *testing.T) {
		dir, ca := t.TempDir(), newCA(t, "servers")
		certFile, keyFile := filepath.Join(dir, "sni.crt"), filepath.Join(dir, "sni.key")
		ca.issueFiles(t, "named.example", certFile, keyFile)
		cfg := testServing(t, nil)
		cfg.TLS.SNI = []cliflag.NamedCertKey{{CertFile: certFile, KeyFile: keyFile}}
		s := serve(t, cfg, serverDeps{})
		if got := servedName(t, s, "named.example"); got != "named.example" {
			t.Errorf("asked for named.example, got the certificate of %q", got)
		}
		if got := servedName(t, s, "localhost"); got == "named.example" {
			t.Error("asked for localhost, got the certificate of named.example")
		}
	})
}

func TestServingProtocols(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.TLS.MinVersion = tls.VersionTLS13
	cfg.TLS.DisableHTTP2 = true
	s := serve(t, cfg, serverDeps{})
	if _, err := tls.Dial("tcp", s.address(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 accepted though the minimum is 1.3")
	}
	for _, disabled := range []bool{true, false} {
		cfg.TLS.DisableHTTP2 = disabled
		conn, err := tls.Dial("tcp", serve(t, cfg, serverDeps{}).address(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; (got == "h2") == disabled {
			t.Errorf("with DisableHTTP2=%v the protocol is %q", disabled, got)
		}
		_ = conn.Close()
	}
}

func TestServingBadInput(t *testing.T) {
	ca := newCA(t, "servers")
	dir := t.TempDir()
	certA, keyA := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	certB, keyB := filepath.Join(dir, "b.crt"), filepath.Join(dir, "b.key")
	ca.issueFiles(t, "a", certA, keyA)
	ca.issueFiles(t, "b", certB, keyB)
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
}

func allowAll(cfg ServingConfig) ServingConfig {
	cfg.Authorization.AlwaysAllowPaths = []string{"*"}
	return cfg
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func served(t *testing.T, s *server, name string) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", s.address(), &tls.Config{InsecureSkipVerify: true, ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0]
}

func servedName(t *testing.T, s *server, name string) string {
	return served(t, s, name).Subject.CommonName
}

// testCA issues certificates.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(t *testing.T, name string) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate for a client or server called name.
func (ca *testCA) issue(t *testing.T, name string, groups ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (ca *testCA) issueFiles(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	cert := ca.issue(t, name)
	key, err := keyutil.MarshalPrivateKeyToPEM(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{
		certFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), keyFile: key,
	} {
		// As kubelet and cert-manager do it: the new file takes the old one's name.
		if err := os.WriteFile(file+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
}
