package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

// TestWhoGetsWhat checks the access of clients that a real API server reviews. TestServingPaths in pkg/serving has all
// paths.
func TestWhoGetsWhat(t *testing.T) {
	ns, port := cluster.Namespace(t), controlplane.FreePort(t)
	reviewer := cluster.ManagerKubeconfig(t, "manager")
	controlplane.StartProcess(t, append(manager(t), "--controllers=", "--leader-elect=false", fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
		"--authentication-kubeconfig="+reviewer, "--authorization-kubeconfig="+reviewer)...)
	admin := cluster.ConfigFor("admin", "system:masters")
	// The client CA comes from the cluster, a moment after the start.
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		_, err := controlplane.Page(ctx, admin, port, "/metrics")
		return err
	})
	bearer := func(token string) *rest.Config { return &rest.Config{BearerToken: token} }
	clients := []*rest.Config{
		{}, bearer("wrong"), bearer(cluster.Token(t, ns, "other", "another-audience")), bearer(cluster.Token(t, ns, "none")),
		cluster.ConfigFor("nobody"), cluster.ConfigFor("scraper", "system:monitoring"), admin,
	}
	for path, want := range map[string][]int{ // in the order of clients
		"/healthz":        {200, 401, 401, 200, 200, 200, 200},
		"/readyz/caches":  {403, 401, 401, 403, 403, 200, 200},
		"/metrics":        {403, 401, 401, 403, 403, 200, 200},
		"/debug/pprof/":   {403, 401, 401, 403, 403, 403, 200},
		"/debug/flags/v":  {403, 401, 401, 403, 403, 403, 406},
		"/does/not/exist": {403, 401, 401, 403, 403, 403, 404},
	} {
		for i, client := range clients {
			if code, body, err := controlplane.Get(t.Context(), client, port, path); err != nil || code != want[i] {
				t.Errorf("GET %s, client %d = %d, %v; want %d: %.200s", path, i, code, err, want[i], body)
			}
		}
	}
}
