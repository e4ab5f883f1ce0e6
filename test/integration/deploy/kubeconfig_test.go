package deploy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"minikcm/test/controlplane"
)

const identity = "system:serviceaccount:kube-system:controller-manager"

var groups = []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}

func TestKubeconfigRecipe(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	program(t, "openssl", "Debian: apt-get install openssl")
	ca, caFile, keyFile := authority(t)
	text, complaints, err := kubeconfigScript(caFile, keyFile, "https://127.0.0.1:6443")
	if err != nil || complaints != "" {
		t.Fatalf("%v: %s", err, complaints)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://127.0.0.1:6443" {
		t.Errorf("server = %s", cfg.Host)
	}
	if caText := read(t, caFile); !slices.Equal(cfg.CAData, caText) {
		t.Errorf("CA = %q, want %q", cfg.CAData, caText)
	}
	if _, err := rest.TransportFor(cfg); err != nil {
		t.Fatalf("certificate and key do not fit: %v", err)
	}
	block, _ := pem.Decode(cfg.CertData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(cert.Subject.Organization)
	if cert.Subject.CommonName != identity || !slices.Equal(cert.Subject.Organization, groups) {
		t.Errorf("certificate is for %s", cert.Subject)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if days := cert.NotAfter.Sub(cert.NotBefore).Hours() / 24; days != 365 {
		t.Errorf("certificate is good for %v days, want 365", days)
	}
}

func kubeconfigScript(args ...string) (out []byte, complaints string, err error) {
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(deployDir, "static-pod", "kubeconfig.sh"), args...)
	cmd.Stderr = &stderr
	out, err = cmd.Output()
	return out, stderr.String(), err
}

func authority(t *testing.T) (ca *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca, certFile, keyFile
}

// TestIdentityHasTheControlPlanesPriority: the identity must match the API server's priority levels for control
// planes, also with a client certificate.
func TestIdentityHasTheControlPlanesPriority(t *testing.T) {
	newApplier(t).keep(t, render(t, "rbac")...)
	client, err := rest.HTTPClientFor(cluster.ConfigFor(identity, groups...))
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := cluster.Client(t).FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/controller-manager": "leader-election",
		"/api/v1/pods": "workload-high",
	} {
		answer, err := client.Get(cluster.Config().Host + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		uid := answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
		i := slices.IndexFunc(schemas.Items, func(s flowcontrolv1.FlowSchema) bool { return string(s.UID) == uid })
		if i < 0 {
			t.Errorf("%s: answer %s names no flow schema", path, answer.Status)
			continue
		}
		if got := schemas.Items[i].Spec.PriorityLevelConfiguration.Name; got != want {
			t.Errorf("%s falls into level %s, want %s", path, got, want)
		}
	}
}
