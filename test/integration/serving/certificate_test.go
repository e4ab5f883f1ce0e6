package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"minikcm/test/controlplane"
)

// pair is a certificate and its key as files.
type pair struct{ cert, key []byte }

// newPair makes a pair for a host name, by which a test knows it again.
func newPair(t *testing.T, host string) pair {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair{cert, key}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serves reports whether the certificate that the endpoint serves is good for host.
func (e *endpoint) serves(host string) error {
	conn, err := tls.Dial("tcp", e.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].VerifyHostname(host)
}

// The ways in which a certificate is renewed. Each file may be seen before the other is there, and then the old pair must go on.
func TestCertificateReplacedOnDiskIsServed(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, dir string, p pair){
		"written over, as a script does": func(t *testing.T, dir string, p pair) {
			write(t, filepath.Join(dir, "tls.crt"), p.cert)
			write(t, filepath.Join(dir, "tls.key"), p.key)
		},
		"renamed over, as careful scripts do": func(t *testing.T, dir string, p pair) {
			for file, content := range map[string][]byte{"tls.crt": p.cert, "tls.key": p.key} {
				write(t, filepath.Join(dir, "new"), content)
				if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"behind links to what stays, as certbot does": func(t *testing.T, dir string, p pair) {
			for file, content := range map[string][]byte{"tls.crt": p.cert, "tls.key": p.key} {
				target := filepath.Join(t.TempDir(), file)
				write(t, target, content)
				link := filepath.Join(dir, file)
				if err := errors.Join(os.Symlink(target, link+"-new"), os.Rename(link+"-new", link)); err != nil {
					t.Fatal(err)
				}
			}
		},
		"behind a link to a folder, as the kubelet does with a Secret": func(t *testing.T, dir string, p pair) {
			old, _ := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
			version, err := os.MkdirTemp(dir, "..version-")
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(version, "tls.crt"), p.cert)
			write(t, filepath.Join(version, "tls.key"), p.key)
			data := filepath.Join(dir, "..data")
			if err := errors.Join(os.Symlink(filepath.Base(version), data+"-new"), os.Rename(data+"-new", data)); err != nil {
				t.Fatal(err)
			}
			if old != "" {
				defer func() { _ = os.RemoveAll(old) }()
			}
			for _, file := range []string{"tls.crt", "tls.key"} {
				if err := os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)); err != nil && !os.IsExist(err) {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			replace(t, dir, newPair(t, "first"))
			e := start(t, "--tls-cert-file="+filepath.Join(dir, "tls.crt"), "--tls-private-key-file="+filepath.Join(dir, "tls.key"))
			if err := e.serves("first"); err != nil {
				t.Fatal(err)
			}
			replace(t, dir, newPair(t, "second"))
			controlplane.Eventually(t, time.Minute, func(context.Context) error { return e.serves("second") })
		})
	}
}

// A renewal that went wrong is no reason to stop serving; the next one that is right is taken.
func TestBrokenReplacementIsNotServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	first, third := newPair(t, "first"), newPair(t, "third")
	write(t, cert, first.cert)
	write(t, key, first.key)
	e := start(t, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
	write(t, cert, newPair(t, "second").cert) // whose key does not come
	controlplane.Eventually(t, time.Minute, func(context.Context) error {
		if !strings.Contains(e.process.Output(), "private key does not match") {
			return errors.New("nothing was logged about the certificate without its key")
		}
		return nil
	})
	controlplane.Consistently(t, 3*time.Second, func(context.Context) error { return e.serves("first") })
	write(t, cert, third.cert)
	write(t, key, third.key)
	controlplane.Eventually(t, time.Minute, func(context.Context) error { return e.serves("third") })
}

// What is wrong with the files is told in one line, with exit code 1.
func TestCertificateThatCannotBeServed(t *testing.T) {
	dir := t.TempDir()
	a, b := newPair(t, "a"), newPair(t, "b")
	for file, content := range map[string][]byte{"a.crt": a.cert, "a.key": a.key, "b.key": b.key, "empty.crt": nil, "text.crt": []byte("certificate")} {
		write(t, filepath.Join(dir, file), content)
	}
	for _, tt := range []struct {
		name, cert, key string
		want            string
	}{
		{"key of another certificate", "a.crt", "b.key", "private key does not match public key"},
		{"no certificate", "missing.crt", "a.key", "missing.crt: no such file or directory"},
		{"no key", "a.crt", "missing.key", "missing.key: no such file or directory"},
		{"empty file", "empty.crt", "a.key", "missing content"},
		{"not a certificate", "text.crt", "a.key", "failed to find any PEM data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cert, key := filepath.Join(dir, tt.cert), filepath.Join(dir, tt.key)
			p := controlplane.StartProcess(t, "--kubeconfig="+cluster.ManagerKubeconfig(t, "manager"), "--controllers=", "--leader-elect=false",
				"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", controlplane.FreePort(t)), "--tls-cert-file="+cert, "--tls-private-key-file="+key)
			code, err := p.Wait(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			said := lines(p.Output())
			last := said[len(said)-1]
			for _, want := range []string{"--tls-cert-file", cert, key, tt.want} {
				if !strings.Contains(last, want) {
					t.Errorf("last line does not say %q:\n%s", want, last)
				}
			}
			if code != 1 || strings.Contains(p.Output(), "goroutine ") {
				t.Errorf("exit code %d, want 1 and no stack trace:\n%s", code, p.Output())
			}
		})
	}
}
