package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPagesOfAManagerAreReadAsItsUser(t *testing.T) {
	port := FreePort(t)
	admin := cluster.ConfigFor("reader", "system:masters")
	kubeconfig := cluster.KubeconfigFor(t, admin)
	StartProcess(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--controllers=", "--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port))
	Eventually(t, 30*time.Second, func(ctx context.Context) error {
		body, err := Page(ctx, admin, port, "/metrics")
		if err == nil && !strings.Contains(string(body), "go_goroutines") {
			err = errors.New("these are no metrics")
		}
		return err
	})
	if _, err := Page(t.Context(), cluster.ConfigFor("nobody"), port, "/metrics"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("GET /metrics as somebody without rights: %v, want 403", err)
	}
}
