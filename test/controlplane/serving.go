package controlplane

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// FreePort returns a free port of loopback outside the range from which the system assigns ports.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := FindPort()
	Must(t, err)
	return port
}

// FindPort is FreePort for programs.
func FindPort() (int, error) {
	const first, last = 10_000, 32_000
	var err error
	for range 100 {
		port := first + rand.IntN(last-first)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// Page reads a page of a manager on this machine as identity. A status other than 200 is an error.
func Page(ctx context.Context, identity *rest.Config, port int, page string) ([]byte, error) {
	code, body, err := Get(ctx, identity, port, page)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("get %s: %d: %s", page, code, body)
	}
	return body, err
}

// Get sends a GET to a manager on this machine with the client certificate or the bearer token of identity.
func Get(ctx context.Context, identity *rest.Config, port int, page string) (code int, body []byte, err error) {
	cfg := &rest.Config{BearerToken: identity.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertData: identity.CertData, KeyData: identity.KeyData}}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return 0, nil, err
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport) // client.CloseIdleConnections ignores wrapped transports
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, page), nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
