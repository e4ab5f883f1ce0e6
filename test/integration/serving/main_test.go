// Package serving tests who may read the pages of the HTTPS endpoint, with a real API server.
package serving

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.Cluster) { cluster = c }))
}

// start runs a manager without controllers and returns the port of its endpoint.
func start(t *testing.T, args ...string) (port int) {
	t.Helper()
	port = controlplane.FreePort(t)
	controlplane.StartProcess(t, append([]string{
		"--kubeconfig=" + cluster.ManagerKubeconfig(t, "manager"), "--controllers=", "--leader-elect=false",
		fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
	}, args...)...)
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := controlplane.Page(ctx, &rest.Config{}, port, "/livez")
		return err
	})
	return port
}

func get(t *testing.T, port int, identity *rest.Config, path string) (code int, body []byte) {
	t.Helper()
	code, body, err := controlplane.Get(t.Context(), identity, port, path)
	if err != nil {
		t.Fatal(err)
	}
	return code, body
}
