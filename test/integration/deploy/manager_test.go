package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

const identity = "system:serviceaccount:kube-system:controller-manager"

// start runs a manager with a service account per controller, quick enough to be waited for.
func start(t *testing.T) (port int) {
	t.Helper()
	cfg := rest.AnonymousClientConfig(cluster.Config())
	cfg.BearerToken = cluster.Token(t, "kube-system", "controller-manager")
	kubeconfig := cluster.KubeconfigFor(t, cfg)
	port = controlplane.FreePort(t)
	controlplane.StartProcess(t,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--use-service-account-credentials",
		"--node-monitor-period=500ms", "--node-monitor-grace-period=4s", "--node-startup-grace-period=4s",
		"--terminated-pod-gc-threshold=1", "--namespace-deletion-grace-period=0s",
	)
	expect(t, port, "", "/readyz", 200)
	return port
}

// expect waits until a page of the manager has the status, and returns the page.
func expect(t *testing.T, port int, token, path string, want int) (page []byte) {
	t.Helper()
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		code, body, err := controlplane.Get(ctx, &rest.Config{BearerToken: token}, port, path)
		if err == nil && code != want {
			err = fmt.Errorf("GET %s: %d, want %d: %.300s", path, code, want, body)
		}
		page = body
		return err
	})
	return page
}

// TestManagerWithDeploysRights runs all controllers with the rights of deploy/rbac and deploy/service-accounts, without
// the API server's default bindings for these accounts. Managers with a single account have the rights of deploy/rbac
// in all other integration tests.
func TestManagerWithDeploysRights(t *testing.T) {
	withoutUpstreamsBindings(t)
	namespace(t, "monitoring")
	keep(t, append(render(t, "prometheus"), kustomize(t, accountsRights)...)...)
	begin := time.Now()
	port := start(t)
	w := startWorkload(t)
	w.wait(t)
	t.Run("who may read what", func(t *testing.T) { checkAccess(t, port) })
	t.Run("metrics are as documented", func(t *testing.T) { checkMetrics(t, port) })
	t.Run("no object is named in metrics", func(t *testing.T) { checkNames(t, port) })
	w.letGo(t)

	requests := cluster.AuditLogSince(t, begin)
	for _, account := range append(slices.Collect(maps.Values(accounts())), "controller-manager") {
		byAccount := requests.Select(controlplane.ByUser(controlplane.ServiceAccount(account)))
		for _, e := range byAccount.Select(unauthorized) {
			t.Errorf("the API server refused %s: %s %s", account, e.Verb, e.RequestURI)
		}
		if len(byAccount.Select(controlplane.Writes)) == 0 {
			t.Errorf("%s wrote nothing, so its role was not tried", account)
		}
	}
	own := []string{"leases", "events", "serviceaccounts", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"}
	for _, e := range requests.Select(controlplane.Writes, controlplane.ByUser(identity)) {
		if !slices.Contains(own, e.ObjectRef.Resource) {
			t.Errorf("the manager itself sent %s %s", e.Verb, e.RequestURI)
		}
	}
}

// unauthorized accepts requests that the user had no right to send. Admission also refuses with 403.
func unauthorized(e *auditv1.Event) bool {
	return e.Annotations["authorization.k8s.io/decision"] == "forbid"
}

// checkAccess checks the permissions of deploy/prometheus, and clients that only a real API server can review.
// TestServingPaths in pkg/serving has all paths.
func checkAccess(t *testing.T, port int) {
	for path, want := range map[string]int{"/metrics": 200, "/metrics/slis": 200, "/configz": 403, "/flagz": 403, "/debug/pprof/heap": 403} {
		expect(t, port, cluster.Token(t, "monitoring", "prometheus"), path, want)
	}
	expect(t, port, cluster.Token(t, "monitoring", "stranger"), "/metrics", 403)
	expect(t, port, cluster.Token(t, "monitoring", "prometheus", "another-audience"), "/metrics", 401)
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error { // the client CA comes from the cluster
		_, err := controlplane.Page(ctx, cluster.ConfigFor("administrator", "system:masters"), port, "/configz")
		return err
	})
}
