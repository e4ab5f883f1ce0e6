// Package serving tests the HTTPS endpoint with a real API server: access, pages, and an unreachable API server.
package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.Cluster) { cluster = c }))
}

// endpoint is the HTTPS endpoint of a manager.
type endpoint struct {
	address string
	process *controlplane.Process
}

func start(t *testing.T, args ...string) *endpoint {
	t.Helper()
	port := controlplane.FreePort(t)
	args = append([]string{
		"--kubeconfig=" + cluster.ManagerKubeconfig(t, "manager"), "--controllers=", "--leader-elect=false",
		fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
	}, args...)
	e := &endpoint{address: fmt.Sprintf("127.0.0.1:%d", port), process: controlplane.StartProcess(t, args...)}
	controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
		code, body, err := e.try("/livez", nil)
		if err == nil && code != http.StatusOK && code != http.StatusForbidden {
			err = fmt.Errorf("GET /livez = %d: %s", code, body)
		}
		return err
	})
	return e
}

type client struct {
	token string
	cert  *tls.Certificate
}

func (e *endpoint) get(t *testing.T, path string, c *client) (int, string) {
	t.Helper()
	code, body, err := e.try(path, c)
	if err != nil {
		t.Fatal(err)
	}
	return code, body
}

func (e *endpoint) try(path string, c *client) (int, string, error) {
	config := &tls.Config{InsecureSkipVerify: true}
	r, err := http.NewRequest(http.MethodGet, "https://"+e.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if c != nil && c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c != nil && c.cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
	}
	h := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	answer, err := h.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}
