package deploy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

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
	must(t, err)
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
	leaf, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	slices.Sort(leaf.Subject.Organization)
	if leaf.Subject.CommonName != identity || !slices.Equal(leaf.Subject.Organization, groups) {
		t.Errorf("certificate is for %s", leaf.Subject)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if days := leaf.NotAfter.Sub(leaf.NotBefore).Hours() / 24; days != 365 {
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
	must(t, err)
	ca, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, key)
	must(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	must(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	must(t, errors.Join(cert.WriteCert(certFile, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw})), keyutil.WriteKey(keyFile, keyPEM)))
	return ca, certFile, keyFile
}
