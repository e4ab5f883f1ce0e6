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
	if err != nil {
		t.Fatal(err)
	}
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

// Page reads a page of a manager on this machine with the client certificate of identity. A status other than 200 is
// an error.
func Page(ctx context.Context, identity *rest.Config, port int, page string) ([]byte, error) {
	cfg := rest.CopyConfig(identity)
	cfg.TLSClientConfig = rest.TLSClientConfig{Insecure: true, CertData: identity.CertData, KeyData: identity.KeyData}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport) // client.CloseIdleConnections ignores wrapped transports
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", port, page), nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", page, answer.Status, body)
	}
	return body, err
}
