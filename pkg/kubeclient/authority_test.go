package kubeclient

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/pkg/internal/fakeapi"
)

// A server's certificate and the file with its authority change in the same moment. Who waits for client-go waits five minutes.
func TestAuthoritiesAreReadAgainWhenTheServerIsUnknown(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			var certificate atomic.Pointer[tls.Certificate]
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
			server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return &tls.Config{Certificates: []tls.Certificate{*certificate.Load()}, NextProtos: []string{protocol}}, nil
			}}
			server.EnableHTTP2 = true
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)

			file := filepath.Join(t.TempDir(), "ca.crt")
			change := func(file string, ca *fakeapi.CA) {
				t.Helper()
				certificate.Store(ca.Issue(t, "server"))
				if err := os.WriteFile(file, ca.PEM, 0o600); err != nil {
					t.Fatal(err)
				}
				server.CloseClientConnections()
			}
			change(file, fakeapi.NewCA(t, "one"))
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file, ServerName: "server"}}
			followAuthority(cfg)
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			get := func() error {
				resp, err := client.Get(server.URL)
				if err == nil {
					err = resp.Body.Close()
				}
				return err
			}
			if err := get(); err != nil {
				t.Fatal(err)
			}
			change(file, fakeapi.NewCA(t, "two"))
			var last error
			for range 3 { // one finds its connection closed, one meets an unknown authority
				last = get()
			}
			if last != nil {
				t.Errorf("the third request after the change: %v", last)
			}
			change(filepath.Join(t.TempDir(), "elsewhere"), fakeapi.NewCA(t, "three"))
			for range 3 {
				if err := get(); err == nil {
					t.Fatal("a server that no authority vouches for was accepted")
				}
			}
		})
	}
}

// An authority that was taken out of the file is not trusted for ever.
func TestAuthoritiesTakenOutOfTheFileAreNoLongerTrusted(t *testing.T) {
	one, two := fakeapi.NewCA(t, "one"), fakeapi.NewCA(t, "two")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*two.Issue(t, "server")}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(ca *fakeapi.CA) {
		t.Helper()
		if err := os.WriteFile(file, ca.PEM, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(one.PEM)
	client := http.Client{Transport: &authorityFollower{file: file, clock: clk, base: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: "server"}, DisableKeepAlives: true,
	}}}
	get := func() error {
		resp, err := client.Get(server.URL)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	write(one)
	write(two)
	if err := get(); err == nil {
		t.Fatal("a server of an unknown authority was accepted")
	}
	if err := get(); err != nil {
		t.Fatalf("the authority is in the file now: %v", err)
	}
	write(one)
	clk.SetTime(clk.Now().Add(authorityAge - time.Second))
	if err := get(); err != nil {
		t.Errorf("the file was read less than five minutes ago: %v", err)
	}
	clk.SetTime(clk.Now().Add(time.Second))
	if err := get(); err == nil {
		t.Error("the authority was taken out of the file five minutes ago and is still trusted")
	}
}
