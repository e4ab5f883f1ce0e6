package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// certificateSlack is how far before and after now the certificate is valid, for clients whose clock a test moves.
const certificateSlack = 30 * 24 * time.Hour

// selfSigned makes a serving certificate for 127.0.0.1 that is its own authority, and its PEM form to trust.
func selfSigned(now time.Time) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "fault-proxy"},
		NotBefore:             now.Add(-certificateSlack),
		NotAfter:              now.Add(certificateSlack),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("sign certificate: %w", err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority, nil
}

// certify gives the proxy a certificate and an authority that nobody knows yet.
func (p *Proxy) certify() error {
	certificate, authority, err := selfSigned(time.Now())
	if err != nil {
		return err
	}
	p.certificate.Store(&certificate)
	p.lock.Lock()
	defer p.lock.Unlock()
	p.authority = authority
	return nil
}

func (p *Proxy) currentCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.certificate.Load(), nil
}

// RotateAuthority changes the certificate of the server, and the authority that has signed it, as the client sees them, and resets its
// connections. Config has the new authority from then on.
func (p *Proxy) RotateAuthority() error {
	if err := p.certify(); err != nil {
		return err
	}
	p.CutConnections()
	return nil
}
