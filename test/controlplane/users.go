package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func (c *Cluster) newUser(user string, groups ...string) (*rest.Config, error) {
	api := c.primary.api
	cfg, err := api.SecureServing.Authn.AddUser(envtest.User{Name: user, Groups: groups}, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("add user %s: %w", user, err)
	}
	cfg.CAData = api.SecureServing.CA
	cfg.Host = api.SecureServing.URL("https", "").String()
	return cfg, nil
}

// Config returns a copy of the admin's config (group system:masters), without a client-side rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// ConfigFor returns a config that authenticates as user in groups, without a client-side rate limit. A user has a
// single certificate. ConfigFor panics if no key can be made.
func (c *Cluster) ConfigFor(user string, groups ...string) *rest.Config {
	key := strings.Join(append([]string{user}, groups...), "\x00")
	c.usersLock.Lock()
	defer c.usersLock.Unlock()
	if _, ok := c.users[key]; !ok {
		cfg, err := c.newUser(user, groups...)
		if err != nil {
			panic(err)
		}
		c.users[key] = cfg
	}
	return rest.CopyConfig(c.users[key])
}

// AtSecond returns a copy of cfg for the second API server.
func (c *Cluster) AtSecond(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host = c.second.api.SecureServing.URL("https", "").String()
	return cfg
}

// Client returns a client with the admin's rights.
func (c *Cluster) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	return ClientFor(t, c.Config())
}

// ClientFor returns a client for cfg that speaks protobuf.
func ClientFor(t testing.TB, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	Must(t, err)
	return client
}

// Token returns a token of a service account, which is created if need be.
func (c *Cluster) Token(t testing.TB, namespace, name string, audiences ...string) string {
	t.Helper()
	accounts := c.Client(t).CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := accounts.CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	Must(t, err)
	return issued.Status.Token
}

func (c *Cluster) Kubeconfig(t testing.TB, user string, groups ...string) string {
	t.Helper()
	return c.KubeconfigFor(t, c.ConfigFor(user, groups...))
}

// KubeconfigFor writes a kubeconfig file with the server and the credentials of cfg, for example of a proxy.
func (c *Cluster) KubeconfigFor(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	Must(t, WriteKubeconfig(path, cfg))
	return path
}

// WriteKubeconfig writes the server and the credentials of cfg to a kubeconfig file at path, readable by us only.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "controlplane"
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: cfg.Host, CertificateAuthorityData: cfg.CAData, CertificateAuthority: cfg.CAFile,
			TLSServerName: cfg.ServerName, InsecureSkipTLSVerify: cfg.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: cfg.CertData, ClientCertificate: cfg.CertFile,
			ClientKeyData: cfg.KeyData, ClientKey: cfg.KeyFile,
			Token: cfg.BearerToken, TokenFile: cfg.BearerTokenFile,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
