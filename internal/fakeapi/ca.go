package fakeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// CA issues certificates.
type CA struct {
	PEM  []byte // certificate of the authority
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns an authority whose certificate is valid for an hour.
func NewCA(t *testing.T, name string) *CA {
	t.Helper()
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	cert := Must(x509.ParseCertificate(der))
	return &CA{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert, key}
}

// Issue returns a certificate for a client of some groups, or a server, called name.
func (ca *CA) Issue(t *testing.T, name string, groups ...string) *tls.Certificate {
	t.Helper()
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der := Must(x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key))
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// IssueFiles writes a certificate and a key atomically, as kubelet and cert-manager do.
func (ca *CA) IssueFiles(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	cert := ca.Issue(t, name)
	key := Must(keyutil.MarshalPrivateKeyToPEM(cert.PrivateKey))
	for file, content := range map[string][]byte{
		certFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), keyFile: key,
	} {
		NoError(t, os.WriteFile(file+".new", content, 0o600))
		NoError(t, os.Rename(file+".new", file))
	}
}
