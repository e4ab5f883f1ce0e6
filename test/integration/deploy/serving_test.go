package deploy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"minikcm/pkg/app"
	"minikcm/pkg/app/command"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

// token makes a token of a service account, and the account if need be.
func token(t *testing.T, namespaceName, name string) string {
	t.Helper()
	namespace(t, namespaceName)
	accounts := cluster.Client(t).CoreV1().ServiceAccounts(namespaceName)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	answer, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// endpoint is a manager's, for a client with some credentials.
type endpoint struct {
	address string
	token   string
	certs   []tls.Certificate
}

func (e endpoint) get(path string) (code int, text string, err error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: e.certs}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, "https://"+e.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if e.token != "" {
		request.Header.Set("Authorization", "Bearer "+e.token)
	}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

func (e endpoint) expect(t *testing.T, path string, want int) string {
	t.Helper()
	var text string
	controlplane.Eventually(t, patience, func(context.Context) error {
		code, body, err := e.get(path)
		if err == nil && code != want {
			err = fmt.Errorf("GET %s: %d, want %d: %s", path, code, want, body[:min(len(body), 300)])
		}
		text = body
		return err
	})
	return text
}

// certificate is that of a user of the test cluster.
func certificate(t *testing.T, user string) []tls.Certificate {
	t.Helper()
	cfg := cluster.ConfigFor(user)
	pair, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

func allowScraping(t *testing.T, user string) {
	t.Helper()
	a := newApplier(t)
	a.keep(t, render(t, "prometheus")...)
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "scraper-" + user},
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "controller-manager:scraper"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": rbacv1.GroupName, "name": user}},
	}}
	a.keep(t, binding)
}

func serve(t *testing.T, user string) string {
	t.Helper()
	kubeconfig := cluster.Kubeconfig(t, user)
	address := fmt.Sprintf("127.0.0.1:%d", controlplane.FreePort(t))
	_, port, _ := net.SplitHostPort(address)
	controlplane.StartManager(t, command.New(app.Controllers()), "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig, "--controllers=", "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+port)
	return address
}

// TestServingNeedsItsBindings removes each of the two bindings that authentication and authorization need.
func TestServingNeedsItsBindings(t *testing.T) {
	allowScraping(t, "scraper")
	prometheus := token(t, "monitoring", "prometheus")
	for _, tt := range []struct {
		without     string
		token, cert int // codes for /metrics
	}{
		{without: "nothing", token: 200, cert: 200},
		{without: "controller-manager:auth-delegator", token: 401, cert: 500},
		{without: "controller-manager:authentication-reader", token: 200, cert: 403},
	} {
		t.Run("without "+tt.without, func(t *testing.T) {
			objects := slices.DeleteFunc(parse(t, read(t, deployDir, "rbac", "identity.yaml")), func(o *unstructured.Unstructured) bool {
				return o.GetName() == tt.without
			})
			user := "serving-" + strings.TrimPrefix(tt.without, "controller-manager:")
			grant(t, user, objects, nil)
			address := serve(t, user)
			endpoint{address: address, token: prometheus}.expect(t, "/metrics", tt.token)
			// Without the client CAs, the manager rejects every certificate.
			controlplane.Eventually(t, patience, func(context.Context) error {
				if len(cluster.AuditLog(t, controlplane.ByUser(user), controlplane.ByResource("configmaps"), controlplane.ByVerb("list", "watch"))) == 0 {
					return errors.New("the manager has not asked for the cluster's CAs")
				}
				return nil
			})
			endpoint{address: address, certs: certificate(t, "scraper")}.expect(t, "/metrics", tt.cert)
			endpoint{address: address}.expect(t, "/readyz", 200)
		})
	}
}

// tokenConfig is the manager's, as the service account that deploy/rbac makes.
func tokenConfig(t *testing.T) *rest.Config {
	t.Helper()
	cfg := rest.AnonymousClientConfig(cluster.Config())
	cfg.BearerToken = token(t, "kube-system", "controller-manager")
	return cfg
}
