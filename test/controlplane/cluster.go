package controlplane

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// startTimeout bounds the start of a server, which takes 3 s on an idle machine.
	startTimeout = 3 * time.Minute
	// startAttempts: a port found free may be taken by another process before the server listens on it.
	startAttempts = 3
)

// Options describe a control plane. The zero value is a single API server without an audit log.
type Options struct {
	// Audit writes an audit log of all requests, for [Cluster.AuditLog].
	Audit bool
	// AuditPolicy is the audit policy as YAML. Empty: everything at level Metadata, stages RequestReceived,
	// ResponseComplete and Panic.
	AuditPolicy string
	// APIServerArgs are flags of kube-apiserver by name without dashes. Their values replace those we would pass.
	APIServerArgs map[string][]string
	// SecondAPIServer starts another kube-apiserver on the same etcd with the same users, see [Cluster.AtSecond] and
	// [Cluster.FreezeSecond].
	SecondAPIServer bool
}

// Cluster is a running control plane. Several tests may use a Cluster at once, except for methods that stop, start,
// pause or freeze a server.
type Cluster struct {
	dir     string
	guard   *guard
	etcd    *envtest.Etcd
	etcdPID string // file
	primary *server
	second  *server
	relay   *relay // between second and etcd

	admin     *rest.Config
	usersLock sync.Mutex
	users     map[string]*rest.Config

	rightsLock sync.Mutex
	rights     []string
}

// Run starts a cluster, passes the cluster to use and runs the tests of m. The result is the exit code for TestMain.
func Run(m *testing.M, o Options, use func(*Cluster)) int {
	if err := flag.Set("test.parallel", "8"); err != nil { // tests mostly wait
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := Start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start control plane:", err)
		return 1
	}
	use(c)
	code := m.Run()
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop control plane:", err)
		return 1
	}
	return code
}

// Start starts etcd and kube-apiserver and waits until the API server is ready and RBAC bootstrap roles are in effect.
func Start(o Options) (_ *Cluster, err error) {
	dir, err := os.MkdirTemp("", "minikcm-controlplane-")
	if err != nil {
		return nil, err
	}
	guard, err := startGuard(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{dir: dir, guard: guard, users: map[string]*rest.Config{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.startEtcd(); err != nil {
		return nil, err
	}
	if c.primary, err = c.newServer("kube-apiserver", o, c.etcd.URL, nil); err != nil {
		return nil, err
	}
	if err := c.primary.startServer(); err != nil {
		return nil, err
	}
	if c.admin, err = c.newUser("admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := waitUsable(c.admin); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.primary.logTail())
	}
	if o.SecondAPIServer {
		return c, c.startSecond(o)
	}
	return c, nil
}

func (c *Cluster) startSecond(o Options) (err error) {
	if c.relay, err = startRelay(c.etcd.URL.Host); err != nil {
		return err
	}
	if c.second, err = c.newServer("kube-apiserver-2", o, c.relay.serverURL(), c.primary); err != nil {
		return err
	}
	if err := c.second.startServer(); err != nil {
		return err
	}
	if err := waitUsable(c.AtSecond(c.admin)); err != nil {
		return fmt.Errorf("%w\n%s", err, c.second.logTail())
	}
	return nil
}

// Stop ends all servers and removes all data. A second call does nothing.
func (c *Cluster) Stop() error {
	if c.guard == nil {
		return nil
	}
	var errs []error
	for _, s := range []*server{c.second, c.primary} {
		if s != nil {
			errs = append(errs, s.killServer())
		}
	}
	if c.relay != nil {
		c.relay.closeAll()
	}
	if c.etcd != nil {
		errs = append(errs, c.stopEtcd())
	}
	errs = append(errs, c.guard.release())
	c.guard = nil
	return errors.Join(errs...)
}

func (c *Cluster) startEtcd() error {
	program, err := Binary("etcd")
	if err != nil {
		return err
	}
	starter, pidFile, err := writeStarter(c.dir, "etcd", program)
	if err != nil {
		return err
	}
	logFile, err := os.Create(filepath.Join(c.dir, "etcd.log"))
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	c.etcdPID = pidFile
	var failed error
	for range startAttempts {
		port, err := FindPort()
		if err != nil {
			return err
		}
		c.etcd = &envtest.Etcd{
			URL:  &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)},
			Path: starter, DataDir: filepath.Join(c.dir, "data"), Out: logFile, Err: logFile,
			StartTimeout: startTimeout, StopTimeout: startTimeout,
		}
		c.etcd.Configure().Set("unsafe-no-fsync", "true") // the data does not outlive the test
		if failed = c.etcd.Start(); failed == nil {
			return nil
		}
	}
	return fmt.Errorf("start etcd: %w\n%s", failed, logEnd(logFile.Name()))
}

func (c *Cluster) stopEtcd() error {
	_ = signalProcess(c.etcdPID, killed)
	err := c.etcd.Stop()
	return errors.Join(ignoreGone(err), os.Remove(c.etcdPID))
}

// BackUpEtcd copies the data of etcd. etcd and the API server are stopped meanwhile, which clients see as an outage of
// seconds.
func (c *Cluster) BackUpEtcd() error {
	return c.whileStopped(func(data, backup string) error { return os.CopyFS(backup, os.DirFS(data)) })
}

// RestoreEtcd restores the copy of BackUpEtcd, resource versions included. It may be called once.
func (c *Cluster) RestoreEtcd() error {
	return c.whileStopped(func(data, backup string) error {
		return errors.Join(os.RemoveAll(data), os.Rename(backup, data))
	})
}

// whileStopped calls do with the data of etcd while neither etcd nor the API server runs.
func (c *Cluster) whileStopped(do func(data, backup string) error) error {
	if err := errors.Join(c.KillAPIServer(), c.stopEtcd()); err != nil {
		return err
	}
	if err := do(c.etcd.DataDir, filepath.Join(c.dir, "backup")); err != nil {
		return err
	}
	if err := c.etcd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return c.StartAPIServer()
}

// EtcdURL is where etcd serves clients, in plain text.
func (c *Cluster) EtcdURL() string { return c.etcd.URL.String() }
