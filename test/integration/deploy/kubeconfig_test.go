package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
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

func TestKubeconfigRecipe(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed (Debian: apt-get install openssl)")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	controlplane.Must(t, err)
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, key)
	controlplane.Must(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	controlplane.Must(t, err)
	certFile, keyFile := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.key")
	controlplane.Must(t, cert.WriteCert(certFile, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw})))
	controlplane.Must(t, keyutil.WriteKey(keyFile, keyPEM))

	cmd := exec.Command(filepath.Join(deployDir, "static-pod", "kubeconfig.sh"), certFile, keyFile, "https://127.0.0.1:6443")
	text, err := cmd.Output()
	controlplane.Must(t, err)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(text)
	controlplane.Must(t, err)
	if cfg.Host != "https://127.0.0.1:6443" || !slices.Equal(cfg.CAData, read(t, certFile)) {
		t.Errorf("server = %s, CA = %q", cfg.Host, cfg.CAData)
	}
	_, err = rest.TransportFor(cfg) // the certificate and the key fit
	controlplane.Must(t, err)
	block, _ := pem.Decode(cfg.CertData)
	leaf, err := x509.ParseCertificate(block.Bytes)
	controlplane.Must(t, err)
	slices.Sort(leaf.Subject.Organization)
	if leaf.Subject.CommonName != identity || !slices.Equal(leaf.Subject.Organization, []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}) {
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
