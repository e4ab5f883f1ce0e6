package kubeclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
)

// ending returns a certificate as PEM with an expiration.
func ending(t *testing.T, then time.Time) []byte {
	t.Helper()
	key := fakeapi.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: then}
	der := fakeapi.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestClientCertificateMetric(t *testing.T) {
	soon, later := ending(t, time.Unix(2e9, 0)), ending(t, time.Unix(3e9, 0))
	file := filepath.Join(t.TempDir(), "cert.pem")
	fakeapi.NoError(t, os.WriteFile(file, later, 0o600))
	for _, tt := range []struct {
		name string
		cfg  rest.TLSClientConfig
		want float64
	}{
		{"no certificate", rest.TLSClientConfig{}, 0},
		{"in the kubeconfig", rest.TLSClientConfig{CertData: soon}, 2e9},
		{"in a file", rest.TLSClientConfig{CertFile: file}, 3e9},
		{"in the kubeconfig, which comes before a file", rest.TLSClientConfig{CertData: soon, CertFile: file}, 2e9},
		{"the first of a chain", rest.TLSClientConfig{CertData: append(append([]byte(nil), soon...), later...)}, 2e9},
		{"the file is missing", rest.TLSClientConfig{CertFile: file + ".none"}, 0},
		{"no certificate in the file", rest.TLSClientConfig{CertFile: os.DevNull}, 0},
	} {
		fakeapi.Want(t, tt.name, testutil.ToFloat64(CertificateMetric(tt.cfg)), tt.want)
	}
	metric := CertificateMetric(rest.TLSClientConfig{CertFile: file})
	for end, text := range map[float64][]byte{2e9: soon, 3e9: later} { // clients reload a renewed file
		fakeapi.NoError(t, os.WriteFile(file, text, 0o600))
		fakeapi.Want(t, "renewed file", testutil.ToFloat64(metric), end)
	}
}
