package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

// feedsAgent is the end of the user agent of the watches of all types.
const feedsAgent = "feeds"

// unused maps a role to rights without a request in the workload.
var unused = map[string]string{
	"controller-manager:replicaset-controller: update replicasets.apps/finalizers":        "checked by an admission plugin, which otherwise rejects the workload's pods",
	"controller-manager:deployment-controller: update deployments.apps/finalizers":        "checked by the same plugin, which otherwise rejects the workload's ReplicaSets",
	"controller-manager:endpointslice-controller: update services/finalizers":             "checked by the same plugin, which otherwise rejects the workload's EndpointSlices",
	"controller-manager:endpointslice-controller: delete endpointslices.discovery.k8s.io": "for a family or a set of ports that goes, see the EndpointSlice controller's own tests",
	"controller-manager:deployment-controller: get replicasets.apps":                      "for a name that is taken or a resize without a response, see the deployment controller's own tests",
	"controller-manager:scraper: list pods in kube-system":                                "for a Prometheus or an API server that does not stream lists",
	"controller-manager:namespace-controller: delete *.*":                                 "for types without deletecollection, which a bare API server does not serve; see the namespace controller's own tests",
}

// start runs a manager as the service account of deploy/rbac, quick enough to be waited for.
func start(t *testing.T, more ...string) (port int) {
	t.Helper()
	cfg := rest.AnonymousClientConfig(cluster.Config())
	cfg.BearerToken = cluster.Token(t, "kube-system", "controller-manager")
	kubeconfig := cluster.KubeconfigFor(t, cfg)
	port = controlplane.FreePort(t)
	controlplane.StartProcess(t, append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--node-monitor-period=500ms", "--node-monitor-grace-period=4s", "--node-startup-grace-period=4s",
		"--terminated-pod-gc-threshold=1", "--namespace-deletion-grace-period=0s",
	}, more...)...)
	expect(t, port, "", "/readyz", 200)
	return port
}

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

// expect waits until a page of the manager has the status, and returns the page.
func expect(t *testing.T, port int, token, path string, want int) (page []byte) {
	t.Helper()
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		code, body, err := controlplane.Get(ctx, &rest.Config{BearerToken: token}, port, path)
		if err == nil && code != want {
			err = fmt.Errorf("GET %s: %d, want %d: %.300s", path, code, want, body)
		}
		page = body
		return err
	})
	return page
}

// runWorkload runs all controllers with the rights of objects. check is called while a namespace waits. The result
// is the requests since the start.
func runWorkload(t *testing.T, name string, objects []*unstructured.Unstructured, args []string, check func(port int)) controlplane.AuditEvents {
	t.Helper()
	keep(t, objects...)
	_ = admin.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "controller-manager"}})
	begin := time.Now()
	port := start(t, args...)
	w := startWorkload(t, name)
	w.wait(t)
	check(port)
	w.letGo(t)
	requests := cluster.AuditLogSince(t, begin)
	for _, e := range requests.Select(unauthorized) {
		if e.User.Username == identity || slices.Contains(accountUsers(), e.User.Username) {
			t.Errorf("the API server refused %s: %s %s", e.User.Username, e.Verb, e.RequestURI)
		}
	}
	return requests
}

// TestManagerWithDeploysRights runs all controllers with the rights of deploy/rbac.
func TestManagerWithDeploysRights(t *testing.T) {
	namespace(t, "monitoring")
	keep(t, render(t, "prometheus")...)
	runWorkload(t, "rights", render(t, "rbac"), nil, func(port int) {
		t.Run("who may read what", func(t *testing.T) { checkAccess(t, port) })
		t.Run("metrics are as documented", func(t *testing.T) { checkMetrics(t, port) })
		t.Run("no object is named in metrics", func(t *testing.T) { checkNames(t, port) })
	})
	t.Run("every right is used", checkUse)
}

// unauthorized accepts requests that the user had no right to send. Admission also refuses with 403.
func unauthorized(e *auditv1.Event) bool {
	return e.Annotations["authorization.k8s.io/decision"] == "forbid"
}

// checkUse requires a request for each right.
func checkUse(t *testing.T) {
	requests := cluster.AuditLog(t, controlplane.ByUser(identity), controlplane.Received)
	for _, r := range rights(t, render(t, "rbac")) {
		used := len(requests.Select(func(e *auditv1.Event) bool { return r.allows(e) })) > 0
		if _, excused := unused[r.role+": "+r.String()]; used == excused {
			t.Errorf("%s: right to %s: used = %v, excused = %v", r.role, r, used, excused)
		}
	}
}

func (r right) allows(e *auditv1.Event) bool {
	ref := e.ObjectRef
	if ref == nil || e.Verb != r.verb {
		return false
	}
	agent := accounts[r.role]
	if agent == accounts["controller-manager:garbage-collector-controller"] && r.verb == "watch" {
		agent = feedsAgent
	}
	informer := r.verb == "list" || r.verb == "watch" // shared by the controllers
	if agent != "" && (!informer || r.resource == "*") && !strings.HasSuffix(e.UserAgent, "/"+agent) {
		return false
	}
	if r.resource == "*" {
		return ref.Resource == "configmaps"
	}
	resource := ref.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	inScope := r.namespace == "" || ref.Namespace == "" || ref.Namespace == r.namespace
	return resource == r.resource && ref.APIGroup == r.group && inScope && (r.name == "" || ref.Name == r.name)
}

// checkAccess checks the permissions of deploy/prometheus. test/integration/app has the other clients.
func checkAccess(t *testing.T, port int) {
	for path, want := range map[string]int{"/metrics": 200, "/metrics/slis": 200, "/configz": 403, "/flagz": 403, "/debug/pprof/heap": 403} {
		expect(t, port, cluster.Token(t, "monitoring", "prometheus"), path, want)
	}
	expect(t, port, cluster.Token(t, "monitoring", "stranger"), "/metrics", 403)
}
