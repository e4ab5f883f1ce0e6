package app

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

// startEndpoint runs a manager without controllers and returns the port of its endpoint.
func startEndpoint(t *testing.T, args ...string) (port int) {
	t.Helper()
	port = controlplane.FreePort(t)
	controlplane.StartProcess(t, slices.Concat(manager(t), []string{
		"--controllers=", "--leader-elect=false", fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1",
	}, args)...)
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

// allow lets a service account read paths.
func allow(t *testing.T, ns, name string, paths ...string) {
	t.Helper()
	client, full := cluster.Client(t), ns+"-"+name
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: full}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: paths}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { // rejections are cached
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "system:serviceaccount:" + ns + ":" + name,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: paths[0]},
		}}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("%s may not get %s yet", name, paths[0])
		}
		return err
	})
}

// TestWhoGetsWhat checks the table of access with a real API server.
func TestWhoGetsWhat(t *testing.T) {
	ns := cluster.Namespace(t)
	reviewer := cluster.ManagerKubeconfig(t, "manager")
	port := startEndpoint(t, "--authentication-kubeconfig="+reviewer, "--authorization-kubeconfig="+reviewer)
	bearer := func(token string) *rest.Config { return &rest.Config{BearerToken: token} }
	scraper, reader := cluster.Token(t, ns, "scraper"), cluster.Token(t, ns, "reader")
	allow(t, ns, "reader", "/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/*", "/livez/*", "/readyz/*", "/healthz/*", "/nothing")
	allow(t, ns, "scraper", "/metrics")
	admin := cluster.ConfigFor("admin", "system:masters")
	clients := []*rest.Config{
		{}, bearer("wrong"), bearer(cluster.Token(t, ns, "other", "another-audience")), bearer(cluster.Token(t, ns, "none")),
		cluster.ConfigFor("nobody"), bearer(scraper), bearer(reader), admin,
	}
	// The client CA comes from the cluster, a moment after the start.
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		_, err := controlplane.Page(ctx, admin, port, "/metrics")
		return err
	})
	open, closed := []int{200, 401, 401, 200, 200, 200, 200, 200}, []int{403, 401, 401, 403, 403, 403, 200, 200}
	for path, want := range map[string][]int{ // in the order of clients
		"/healthz": open, "/healthz?verbose": open, "/livez": open, "/readyz": open,
		"/healthz/ping": closed, "/livez/ping": closed, "/readyz/caches": closed,
		"/metrics":      {403, 401, 401, 403, 403, 200, 200, 200},
		"/metrics/slis": closed, "/configz": closed, "/flagz": closed, "/statusz": closed,
		"/debug/pprof/": closed, "/debug/pprof/goroutine?debug=1": closed,
		"/debug/flags/v": {403, 401, 401, 403, 403, 403, 406, 406},
		"/nothing":       {403, 401, 401, 403, 403, 403, 404, 404},
	} {
		for i, client := range clients {
			if code, body := get(t, port, client, path); code != want[i] {
				t.Errorf("GET %s, client %d = %d, want %d: %.200s", path, i, code, want[i], body)
			}
		}
	}
}

// TestReviewsForbidden: health is open, everything else is closed, and the process continues without the client CAs.
func TestReviewsForbidden(t *testing.T) {
	nobody := cluster.Kubeconfig(t, "nobody")
	port := startEndpoint(t, "--authentication-kubeconfig="+nobody, "--authorization-kubeconfig="+nobody)
	bearer := &rest.Config{BearerToken: cluster.Token(t, cluster.Namespace(t), "some")}
	for _, tt := range []struct {
		path     string
		identity *rest.Config
		want     int
	}{
		{"/metrics", &rest.Config{}, 500},
		{"/healthz", bearer, 401},
		{"/healthz", &rest.Config{}, 200},
	} {
		if got, body := get(t, port, tt.identity, tt.path); got != tt.want {
			t.Errorf("GET %s = %d, want %d: %s", tt.path, got, tt.want, body)
		}
	}
}
