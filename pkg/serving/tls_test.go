package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	cliflag "k8s.io/component-base/cli/flag"

	"minikcm/internal/fakeapi"
)

func TestServingClientCertificates(t *testing.T) {
	ca, other := fakeapi.NewCA(t, "clients"), fakeapi.NewCA(t, "strangers")
	proxies := fakeapi.NewCA(t, "proxies")
	cfg := testServing(t, nil)
	cfg.Authentication.ClientCAFile = fakeapi.WriteFile(t, "ca.crt", ca.PEM)
	cfg.Authentication.RequestHeader.ClientCAFile = fakeapi.WriteFile(t, "proxy.crt", proxies.PEM)
	cfg.Authentication.RequestHeader.AllowedNames = []string{"front-proxy"}
	s := serve(t, cfg, Deps{})
	asMaster := []string{"X-Remote-User", "somebody", "X-Remote-Group", "system:masters"}
	for _, tt := range []struct {
		name    string
		cert    *tls.Certificate
		headers []string
		want    int
	}{
		{"organization is the group", ca.Issue(t, "admin", "system:masters"), nil, 200},
		{"another organization is not", ca.Issue(t, "user", "dev"), nil, 403},
		{"a stranger's certificate is wrong", other.Issue(t, "admin", "system:masters"), nil, 401},
		{"the front proxy speaks for others", proxies.Issue(t, "front-proxy"), asMaster, 200},
		{"a proxy of another name does not", proxies.Issue(t, "someone"), asMaster, 401},
		{"headers without a proxy's certificate say nothing", nil, asMaster, 403},
		{"a client's headers say nothing", ca.Issue(t, "user", "dev"), asMaster, 403},
	} {
		if got, body := request(t, s, "GET", "/metrics", "", tt.cert, tt.headers...); got != tt.want {
			t.Errorf("%s: %d, want %d: %.200s", tt.name, got, tt.want, body)
		}
	}
}

func TestServingReadsClientCAFromCluster(t *testing.T) {
	ca, proxies, api := fakeapi.NewCA(t, "clients"), fakeapi.NewCA(t, "proxies"), fakeapi.New(t)
	cm := &corev1.ConfigMap{Data: map[string]string{
		"client-ca-file":                     string(ca.PEM),
		"requestheader-client-ca-file":       string(proxies.PEM),
		"requestheader-allowed-names":        `["front-proxy"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}}
	cm.Namespace, cm.Name, cm.ResourceVersion = authConfigMapNamespace, authConfigMapName, "1"
	for _, tt := range []struct {
		name   string
		change func(*fakeapi.Server)
		want   int
	}{
		{"published", func(f *fakeapi.Server) { f.ConfigMap = cm }, 200},
		{"missing", func(f *fakeapi.Server) { f.ConfigMap = nil }, 403},
		{"forbidden", func(f *fakeapi.Server) { f.Status = 403 }, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api.Set(func(f *fakeapi.Server) { tt.change(f) })
			cfg := testServing(t, api)
			cfg.Authentication.SkipLookup = false
			s := serve(t, cfg, Deps{})
			if got, _ := request(t, s, "GET", "/healthz", "", nil); got != 200 {
				t.Errorf("GET /healthz = %d, want 200 whatever the ConfigMap is like", got)
			}
			admin, proxy := ca.Issue(t, "admin", "system:masters"), proxies.Issue(t, "front-proxy")
			fakeapi.Eventually(t, func() error {
				got, _ := request(t, s, "GET", "/metrics", "", admin)
				asProxy, _ := request(t, s, "GET", "/metrics", "", proxy, "X-Remote-User", "x", "X-Remote-Group", "system:masters")
				if got != tt.want || asProxy != tt.want {
					return fmt.Errorf("GET /metrics = %d with the client's certificate, %d through the proxy, want %d", got, asProxy, tt.want)
				}
				return nil
			})
		})
	}
}

func TestServingCertificates(t *testing.T) {
	t.Run("made in memory", func(t *testing.T) {
		cert := served(t, serve(t, testServing(t, nil), Deps{}), "")
		for _, host := range []string{"localhost", "127.0.0.1"} {
			fakeapi.NoError(t, cert.VerifyHostname(host))
		}
	})
	t.Run("written to the directory and used again", func(t *testing.T) {
		cfg := testServing(t, nil)
		cfg.TLS.CertDir = t.TempDir()
		if first, second := served(t, serve(t, cfg, Deps{}), ""), served(t, serve(t, cfg, Deps{}), ""); !first.Equal(second) {
			t.Error("a second start made another certificate")
		}
		if info, err := os.Stat(filepath.Join(cfg.TLS.CertDir, "kube-controller-manager.key")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("key file: %v, %v, want mode 0600", info, err)
		}
	})
	t.Run("of files, by the name that the client sends", func(t *testing.T) {
		dir, ca := t.TempDir(), fakeapi.NewCA(t, "servers")
		file := func(name string) string { return filepath.Join(dir, name) }
		ca.IssueFiles(t, "first", file("tls.crt"), file("tls.key"))
		ca.IssueFiles(t, "named.example", file("sni.crt"), file("sni.key"))
		cfg := testServing(t, nil)
		cfg.TLS.CertFile, cfg.TLS.KeyFile = file("tls.crt"), file("tls.key")
		cfg.TLS.SNI = []cliflag.NamedCertKey{{CertFile: file("sni.crt"), KeyFile: file("sni.key")}}
		s := serve(t, cfg, Deps{})
		for asked, want := range map[string]string{"": "first", "localhost": "first", "named.example": "named.example"} {
			fakeapi.Want(t, "certificate for "+asked, served(t, s, asked).Subject.CommonName, want)
		}
		ca.IssueFiles(t, "second", file("tls.crt"), file("tls.key"))
		fakeapi.Eventually(t, func() error {
			if got := served(t, s, "").Subject.CommonName; got != "second" {
				return fmt.Errorf("served certificate of %q, want second", got)
			}
			return nil
		})
	})
}

// silent is a source of certificates that gets no notifications.
type silent struct {
	dynamiccertificates.ControllerRunner
}

func (s silent) Run(ctx context.Context, workers int) {
	<-ctx.Done()
	s.ControllerRunner.Run(ctx, workers) // ends its queue
}

func TestCertificatesBehindAChangedLink(t *testing.T) {
	dir, ca := t.TempDir(), fakeapi.NewCA(t, "servers")
	for _, name := range []string{"old", "new"} {
		fakeapi.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		ca.IssueFiles(t, name, filepath.Join(dir, name, "tls.crt"), filepath.Join(dir, name, "tls.key"))
	}
	link := filepath.Join(dir, "live")
	fakeapi.NoError(t, os.Symlink("old", link))
	synctest.Test(t, func(t *testing.T) {
		c := fakeapi.Must(newCertificates(TLSConfig{CertFile: filepath.Join(link, "tls.crt"), KeyFile: filepath.Join(link, "tls.key")}, owner{}, nil))
		for i, source := range c.sources {
			c.sources[i] = silent{source}
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		c.start(ctx, &running)
		for _, want := range []string{"old", "new"} {
			time.Sleep(rereadInterval + time.Second)
			synctest.Wait()
			cfg := fakeapi.Must(c.tls.GetConfigForClient(&tls.ClientHelloInfo{ServerName: "localhost"}))
			leaf := fakeapi.Must(x509.ParseCertificate(cfg.Certificates[0].Certificate[0]))
			fakeapi.Want(t, "certificate", leaf.Subject.CommonName, want)
			fakeapi.NoError(t, os.Remove(link))
			fakeapi.NoError(t, os.Symlink("new", link))
		}
		stop()
		running.Wait()
	})
}

func TestServingProtocols(t *testing.T) {
	cfg := testServing(t, nil)
	cfg.TLS.MinVersion = "VersionTLS13"
	cfg.TLS.DisableHTTP2 = true
	s := serve(t, cfg, Deps{})
	if _, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 accepted though the minimum is 1.3")
	}
	cfg.TLS.MinVersion = "VersionTLS12"
	for _, disabled := range []bool{true, false} {
		cfg.TLS.DisableHTTP2, cfg.TLS.CipherSuites = disabled, nil
		if disabled {
			// HTTP/2 requires another cipher suite.
			cfg.TLS.CipherSuites = []string{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
		}
		dialer, client := &net.Dialer{Timeout: 10 * time.Second}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
		conn := fakeapi.Must(tls.DialWithDialer(dialer, "tcp", serve(t, cfg, Deps{}).Address(), client))
		if got := conn.ConnectionState().NegotiatedProtocol; (got == "h2") == disabled {
			t.Errorf("with DisableHTTP2=%v the protocol is %q", disabled, got)
		}
		_ = conn.Close()
	}
}

func served(t *testing.T, s *Server, name string) *x509.Certificate {
	t.Helper()
	conn := fakeapi.Must(tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true, ServerName: name}))
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0]
}
