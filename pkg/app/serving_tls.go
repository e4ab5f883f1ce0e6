package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
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
	// certName is the base of the file names in --cert-dir, upstream's.
	certName = "kube-controller-manager"
	// lookAgain is how often certificate files are read although nothing was heard of them: no notification comes when a link on the
	// way to a file is changed and the old file stays, which is how certbot renews.
	lookAgain = 10 * time.Second
	// As k8s.io/apiserver v0.37: per HTTP/2 stream, bytes that may wait to be read, and the largest frame.
	uploadPerStream = 256 << 10
	// defaultStreams is how many requests one HTTP/2 connection may have open, as k8s.io/apiserver v0.37.
	defaultStreams = 100
)

// TLSConfig says which certificates are served, and how.
type TLSConfig struct {
	CertDir           string
	CertFile, KeyFile string
	SNI               []cliflag.NamedCertKey

	MinVersion   uint16
	CipherSuites []uint16      // nil: Go's
	Curves       []tls.CurveID // nil: Go's

	HTTP2Streams int // 0: defaultStreams
	DisableHTTP2 bool
}

// certificates keep what is served and what is asked of clients in step with the files they come from.
type certificates struct {
	tls     *tls.Config
	dynamic *dynamiccertificates.DynamicServingCertificateController
	sources []dynamiccertificates.ControllerRunner
}

// newCertificates loads the serving certificate, or makes one for host, and the certificates for names. Without clientCAs
// clients are not asked for certificates.
func newCertificates(cfg TLSConfig, host string, clientCAs []dynamiccertificates.CAContentProvider) (*certificates, error) {
	cert, err := servingCertificate(cfg, host)
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
	base := &tls.Config{
		MinVersion:       cfg.MinVersion,
		CipherSuites:     cfg.CipherSuites,
		CurvePreferences: cfg.Curves,
		NextProtos:       nextProtocols(cfg),
	}
	var hint dynamiccertificates.CAContentProvider
	if len(clientCAs) > 0 {
		base.ClientAuth = tls.RequestClientCert // checked by the authenticators, so that others may come without
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

// follow makes changes of source visible, and notes it for start if it has files to watch.
func (c *certificates) follow(source dynamiccertificates.Notifier) {
	source.AddListener(c.dynamic)
	if runner, ok := source.(dynamiccertificates.ControllerRunner); ok {
		c.sources = append(c.sources, runner)
	}
}

// start watches the files until ctx ends.
func (c *certificates) start(ctx context.Context, wg *sync.WaitGroup) {
	for _, source := range c.sources {
		wg.Go(func() { source.Run(ctx, 1) })
		if fromFiles(source) {
			wg.Go(func() {
				wait.JitterUntilWithContext(ctx, func(ctx context.Context) { reread(ctx, source) }, lookAgain, 0, true)
			})
		}
	}
	wg.Go(func() { c.dynamic.Run(1, ctx.Done()) })
}

func fromFiles(source dynamiccertificates.ControllerRunner) bool {
	switch source.(type) {
	case *dynamiccertificates.DynamicCertKeyPairContent, *dynamiccertificates.DynamicFileSNIContent, *dynamiccertificates.DynamicFileCAContent:
		return true
	}
	return false
}

// reread takes over what the files hold by now. What was read before stays in use if that is broken.
func reread(ctx context.Context, source dynamiccertificates.ControllerRunner) {
	if err := source.RunOnce(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Read certificate files; the certificates that were read before stay in use")
	}
}

// servingCertificate finds the certificate: given files, files in the directory, or one made now.
func servingCertificate(cfg TLSConfig, host string) (dynamiccertificates.CertKeyContentProvider, error) {
	certFile, keyFile, flags := cfg.CertFile, cfg.KeyFile, "--tls-cert-file, --tls-private-key-file"
	if certFile == "" && cfg.CertDir == "" {
		cert, key, err := selfSigned(host)
		if err != nil {
			return nil, err
		}
		return dynamiccertificates.NewStaticCertKeyContent("self-signed", cert, key)
	}
	if certFile == "" {
		flags = "--cert-dir"
		certFile, keyFile = filepath.Join(cfg.CertDir, certName+".crt"), filepath.Join(cfg.CertDir, certName+".key")
		if err := writeMissing(certFile, keyFile, host); err != nil {
			return nil, fmt.Errorf("%s: %w", flags, err)
		}
	}
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %s and %s: %w", flags, certFile, keyFile, flagcheck.OneLine(err))
	}
	return cert, nil
}

// writeMissing makes a certificate and writes both files unless both exist. One without the other is an error.
func writeMissing(certFile, keyFile, host string) error {
	if ok, err := certutil.CanReadCertAndKey(certFile, keyFile); err != nil || ok {
		return err
	}
	cert, key, err := selfSigned(host)
	if err != nil {
		return err
	}
	if err := certutil.WriteCert(certFile, cert); err != nil {
		return err
	}
	return keyutil.WriteKey(keyFile, key)
}

func nextProtocols(cfg TLSConfig) []string {
	if cfg.DisableHTTP2 {
		return []string{"http/1.1"}
	}
	return []string{"h2", "http/1.1"}
}

func protocols(cfg TLSConfig) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(!cfg.DisableHTTP2)
	return p
}

func http2Config(cfg TLSConfig) *http.HTTP2Config {
	streams := cfg.HTTP2Streams
	if streams == 0 {
		streams = defaultStreams
	}
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streams,
		MaxReadFrameSize:              uploadPerStream,
		MaxReceiveBufferPerStream:     uploadPerStream,
		MaxReceiveBufferPerConnection: uploadPerStream * streams,
	}
}

// quietLog is for what net/http has to say: failed handshakes are the noise of port scans and probes.
func quietLog() *log.Logger { return log.New(httpErrors{}, "", 0) }

type httpErrors struct{}

var _ io.Writer = httpErrors{}

func (httpErrors) Write(line []byte) (int, error) {
	level := klog.Level(1)
	if bytes.Contains(line, []byte("TLS handshake error")) {
		level = 5
	}
	klog.V(level).InfoS("HTTP server", "message", string(bytes.TrimSpace(line)))
	return len(line), nil
}
