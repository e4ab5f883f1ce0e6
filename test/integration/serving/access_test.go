package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"minikcm/test/controlplane"
)

func token(t *testing.T, ns, name string, audiences ...string) string {
	t.Helper()
	ctx, client := context.Background(), cluster.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(ns).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	answer, err := client.CoreV1().ServiceAccounts(ns).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func allow(t *testing.T, ns, name string, verbs []string, paths ...string) {
	t.Helper()
	ctx, client, full := context.Background(), cluster.Client(t), ns+"-"+name
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: full}, Rules: []rbacv1.PolicyRule{{Verbs: verbs, NonResourceURLs: paths}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(ctx, full, metav1.DeleteOptions{})
		_ = client.RbacV1().ClusterRoles().Delete(ctx, full, metav1.DeleteOptions{})
	})
	controlplane.Eventually(t, 20*time.Second, func(ctx context.Context) error { // the manager would remember a refusal
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  "system:serviceaccount:" + ns + ":" + name,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verbs[0], Path: paths[0]},
		}}
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("%s may not %s %s yet", review.Spec.User, verbs[0], paths[0])
		}
		return err
	})
}

func certificate(t *testing.T, cfg *rest.Config) *client {
	t.Helper()
	cert, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return &client{cert: &cert}
}

// TestWhoGetsWhat checks the table of access with a real API server.
func TestWhoGetsWhat(t *testing.T) {
	ns := cluster.Namespace(t)
	reviewer := cluster.ManagerKubeconfig(t, "manager")
	e := start(t, "--authentication-kubeconfig="+reviewer, "--authorization-kubeconfig="+reviewer)
	paths := []string{"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/*", "/livez/*", "/readyz/*", "/healthz/*", "/nothing"}
	none, scraper, ok := token(t, ns, "none"), token(t, ns, "scraper"), token(t, ns, "ok")
	allow(t, ns, "ok", []string{"get"}, paths...)
	allow(t, ns, "scraper", []string{"get"}, "/metrics")
	clients := map[string]*client{
		"anonymous": nil, "wrong token": {token: "wrong"}, "token for another audience": {token: token(t, ns, "other", "elsewhere")},
		"token without rights": {token: none}, "scraper": {token: scraper}, "token with rights": {token: ok},
		"admin's certificate": certificate(t, cluster.ConfigFor("admin", "system:masters")), "certificate without rights": certificate(t, cluster.ConfigFor("nobody")),
	}
	order := []string{"anonymous", "wrong token", "token for another audience", "token without rights", "certificate without rights", "scraper", "token with rights", "admin's certificate"}
	// The client CA comes from the cluster, a moment after the start.
	controlplane.Eventually(t, 20*time.Second, func(context.Context) error {
		if code, body := e.get(t, "/metrics", clients["admin's certificate"]); code != 200 {
			return fmt.Errorf("GET /metrics with the admin's certificate = %d: %.200s", code, body)
		}
		return nil
	})
	for _, tt := range []struct {
		path string
		want []int // in the order above
	}{
		{"/healthz", []int{200, 401, 401, 200, 200, 200, 200, 200}},
		{"/healthz?verbose", []int{200, 401, 401, 200, 200, 200, 200, 200}},
		{"/livez", []int{200, 401, 401, 200, 200, 200, 200, 200}},
		{"/readyz", []int{200, 401, 401, 200, 200, 200, 200, 200}},
		{"/healthz/ping", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/livez/ping", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/readyz/caches", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/metrics", []int{403, 401, 401, 403, 403, 200, 200, 200}},
		{"/metrics/slis", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/configz", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/flagz", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/statusz", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/debug/pprof/", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/debug/pprof/goroutine?debug=1", []int{403, 401, 401, 403, 403, 403, 200, 200}},
		{"/debug/flags/v", []int{403, 401, 401, 403, 403, 403, 406, 406}},
		{"/nothing", []int{403, 401, 401, 403, 403, 403, 404, 404}},
	} {
		for i, who := range order {
			if got, body := e.get(t, tt.path, clients[who]); got != tt.want[i] {
				t.Errorf("GET %s, %s = %d, want %d: %.200s", tt.path, who, got, tt.want[i], body)
			}
		}
	}
}

// TestWithoutKubeconfigs: health is open, everything else is closed.
func TestWithoutKubeconfigs(t *testing.T) {
	e := start(t)
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 200, "/metrics": 403, "/statusz": 403} {
		if got, _ := e.get(t, path, &client{token: "any"}); got != want {
			t.Errorf("GET %s = %d, want %d", path, got, want)
		}
	}
}

// TestReviewsForbidden: health is open, everything else is closed.
func TestReviewsForbidden(t *testing.T) {
	ns := cluster.Namespace(t)
	nobody := cluster.Kubeconfig(t, "nobody")
	e := start(t, "--authentication-kubeconfig="+nobody, "--authorization-kubeconfig="+nobody, "--authorization-always-allow-paths=/healthz,/livez,/readyz,/statusz")
	bearer := &client{token: token(t, ns, "some")}
	for _, tt := range []struct {
		path string
		who  *client
		want int
	}{
		{"/healthz", nil, 200},
		{"/statusz", nil, 200},
		{"/metrics", nil, 500},
		{"/healthz", bearer, 401},
	} {
		if got, body := e.get(t, tt.path, tt.who); got != tt.want {
			t.Errorf("GET %s, token %v = %d, want %d: %s", tt.path, tt.who != nil, got, tt.want, body)
		}
	}
	// The client CAs cannot be read either, and the process goes on.
	e.process.WaitForLog(t, `configmaps \"extension-apiserver-authentication\" is forbidden`)
	if got, _ := e.get(t, "/healthz", nil); got != 200 {
		t.Errorf("GET /healthz = %d, want 200", got)
	}
}
