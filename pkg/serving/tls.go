package serving

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"minikcm/pkg/flagcheck"
)

const (
	// certName is upstream's base of the file names in --cert-dir.
	certName = "kube-controller-manager"
	// rereadInterval is the interval at which certificate files are read without a notification. A changed
	// link on the path of a file, as certbot renews, causes no notification while the old file exists.
	rereadInterval = 10 * time.Second
	// uploadPerStream is the size of the receive buffer of an HTTP/2 stream and of the largest frame, as
	// k8s.io/apiserver v0.37.
	uploadPerStream = 256 << 10
	// defaultStreams is the maximum of open requests of one HTTP/2 connection, as k8s.io/apiserver v0.37.
	defaultStreams = 100
)

// parse returns the settings without certificates, or every problem of c, each with the name of the flag.
func (c *TLSConfig) parse() (*tls.Config, []error) {
	var p flagcheck.Problems
	switch {
	case c.CertFile != "" && c.KeyFile == "":
		p.Addf("tls-private-key-file", "is needed with --tls-cert-file=%s", c.CertFile)
	case c.CertFile == "" && c.KeyFile != "":
		p.Addf("tls-cert-file", "is needed with --tls-private-key-file=%s", c.KeyFile)
	}
	ciphers, err := cliflag.TLSCipherSuites(c.CipherSuites)
	if err != nil {
		p.Addf("tls-cipher-suites", "%w", err)
	}
	curves, err := cliflag.TLSCurvePreferences(c.Curves)
	if err != nil {
		p.Addf("tls-curve-preferences", "%w", err)
	}
	version, err := cliflag.TLSVersion(c.MinVersion)
	if err != nil {
		p.Addf("tls-min-version", "%w", err)
	}
	if c.HTTP2Streams < 0 || c.HTTP2Streams > math.MaxInt32/uploadPerStream {
		p.Addf("http2-max-streams-per-connection", "%d must be between 0 and %d", c.HTTP2Streams, math.MaxInt32/uploadPerStream)
	}
	protocols := []string{"h2", "http/1.1"}
	if c.DisableHTTP2 {
		protocols = protocols[1:]
	}
	return &tls.Config{MinVersion: version, CipherSuites: ciphers, CurvePreferences: curves, NextProtos: protocols}, p
}

// certificates reloads serving certificates and client CAs when their files change.
type certificates struct {
	tls     *tls.Config
	dynamic *dynamiccertificates.DynamicServingCertificateController
	sources []dynamiccertificates.ControllerRunner
}

// newCertificates loads the certificates of the server. Without files the serving certificate is self-signed.
// Without clientCAs the server requests no certificates of clients.
func newCertificates(cfg TLSConfig, by owner, clientCAs []dynamiccertificates.CAContentProvider) (*certificates, error) {
	base, errs := cfg.parse()
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	cert, err := servingCertificate(cfg, by)
	if err != nil {
		return nil, err
	}
	var named []dynamiccertificates.SNICertKeyContentProvider
	for _, sni := range cfg.SNI {
		c, err := dynamiccertificates.NewDynamicSNIContentFromFiles("sni-serving-cert", sni.CertFile, sni.KeyFile, sni.Names...)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key=%s,%s: %w", sni.CertFile, sni.KeyFile, flagcheck.OneLine(err))
		}
		named = append(named, c)
	}
	var hint dynamiccertificates.CAContentProvider
	if len(clientCAs) > 0 {
		base.ClientAuth = tls.RequestClientCert // optional: authenticators verify the certificates
		hint = dynamiccertificates.NewUnionCAContentProvider(clientCAs...)
	}
	dynamic := dynamiccertificates.NewDynamicServingCertificateController(base, hint, cert, named, nil)
	c := &certificates{tls: base, dynamic: dynamic}
	c.follow(cert)
	for _, n := range named {
		c.follow(n)
	}
	for _, ca := range clientCAs {
		c.follow(ca)
	}
	if err := dynamic.RunOnce(); err != nil {
		return nil, fmt.Errorf("serving certificate: %w", flagcheck.OneLine(err))
	}
	c.tls = base.Clone()
	c.tls.GetConfigForClient = dynamic.GetConfigForClient
	return c, nil
}

// follow passes changes of a source on. start runs the source if the source watches files or ConfigMaps.
func (c *certificates) follow(source dynamiccertificates.Notifier) {
	source.AddListener(c.dynamic)
	if runner, ok := source.(dynamiccertificates.ControllerRunner); ok {
		c.sources = append(c.sources, runner)
	}
}

// start runs the sources until ctx ends.
func (c *certificates) start(ctx context.Context, wg *sync.WaitGroup) {
	for _, source := range c.sources {
		wg.Go(func() { source.Run(ctx, 1) })
		wg.Go(func() { wait.UntilWithContext(ctx, func(ctx context.Context) { reread(ctx, source) }, rereadInterval) })
	}
	wg.Go(func() { c.dynamic.Run(1, ctx.Done()) })
}

// reread reads a source again: files, or a ConfigMap in the cache of its informer. Invalid files are ignored.
func reread(ctx context.Context, source dynamiccertificates.ControllerRunner) {
	if err := source.RunOnce(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Read certificate files, the previous certificates stay in use")
	}
}

// servingCertificate returns the certificate of the given files, of the directory, or a self-signed certificate.
func servingCertificate(cfg TLSConfig, by owner) (dynamiccertificates.CertKeyContentProvider, error) {
	certFile, keyFile, flags := cfg.CertFile, cfg.KeyFile, "--tls-cert-file, --tls-private-key-file"
	if certFile == "" && cfg.CertDir == "" {
		cert, key, err := by.selfSigned()
		if err != nil {
			return nil, err
		}
		return dynamiccertificates.NewStaticCertKeyContent("self-signed", cert, key)
	}
	if certFile == "" {
		flags = "--cert-dir"
		certFile, keyFile = filepath.Join(cfg.CertDir, certName+".crt"), filepath.Join(cfg.CertDir, certName+".key")
		if err := writeMissing(certFile, keyFile, by); err != nil {
			return nil, fmt.Errorf("%s: %w", flags, err)
		}
	}
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %s and %s: %w", flags, certFile, keyFile, flagcheck.OneLine(err))
	}
	return cert, nil
}

// writeMissing writes a self-signed certificate and its key unless both files exist. A single file is an error.
func writeMissing(certFile, keyFile string, by owner) error {
	if ok, err := certutil.CanReadCertAndKey(certFile, keyFile); err != nil || ok {
		return err
	}
	cert, key, err := by.selfSigned()
	if err != nil {
		return err
	}
	if err := certutil.WriteCert(certFile, cert); err != nil {
		return err
	}
	return keyutil.WriteKey(keyFile, key)
}

func http2Config(cfg TLSConfig) *http.HTTP2Config {
	streams := cmp.Or(cfg.HTTP2Streams, defaultStreams)
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streams,
		MaxReadFrameSize:              uploadPerStream,
		MaxReceiveBufferPerStream:     uploadPerStream,
		MaxReceiveBufferPerConnection: uploadPerStream * streams,
	}
}

// quietLog returns a log for net/http. Failed handshakes are logged at level 5, because port scans and probes
// cause them.
func quietLog(to klog.Logger) *log.Logger { return log.New(httpErrors{to}, "", 0) }

type httpErrors struct{ log klog.Logger }

func (e httpErrors) Write(line []byte) (int, error) {
	level := 1
	if bytes.Contains(line, []byte("TLS handshake error")) {
		level = 5
	}
	e.log.V(level).Info("HTTP server", "message", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// selfSignedValidity is the validity of a self-signed certificate, as in k8s.io/client-go/util/cert.
const selfSignedValidity = 365 * 24 * time.Hour

// owner is the subject of a self-signed certificate.
type owner struct {
	name    string
	address net.IP // added to localhost unless unspecified
}

// selfSigned returns a new certificate and its key, both PEM. Generating an elliptic curve key takes a
// millisecond. The RSA keys of client-go take most of a second.
func (o owner) selfSigned() (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate serving key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s@%d", o.name, now.Unix())},
		NotBefore:             now.Add(-time.Hour), // for clocks of clients that are behind
		NotAfter:              now.Add(selfSignedValidity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true, // clients can use the certificate as their CA
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := o.address; ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), keyPEM, err
}
