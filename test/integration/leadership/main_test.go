// Package leadership tests failover with real processes on a real API server, each behind a fault proxy. The audit log
// shows whether every write was sent under the lease; a watch shows that a ReplicaSet never had surplus pods.
//
// The lease is 6 s instead of 15 s, so that tests are short. They mostly wait, so they run in parallel, each with its
// own control plane.
package leadership

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

const (
	leaseDuration = 6 * time.Second
	leaseName     = "controller-manager"
	leaseSpace    = "kube-system"
)

var electionFlags = []string{
	"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s",
	"--controllers=replicaset", "-v=2",
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: None
  verbs: [get, list]
- level: Request
  verbs: [create, update, patch, delete]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
`

// defaultParallel is the number of tests that run at once, unless -parallel is given.
const defaultParallel = "8"

var clusters pool

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", defaultParallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	code := m.Run()
	if err := clusters.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop control planes:", err)
		code = 1
	}
	os.Exit(code)
}

// pool keeps control planes for the next test.
type pool struct {
	starting sync.Mutex

	lock sync.Mutex
	free []*controlplane.Cluster
}

func (p *pool) get() (*controlplane.Cluster, error) {
	if c := p.take(); c != nil {
		return c, nil
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	if c := p.take(); c != nil {
		return c, nil
	}
	return controlplane.Start(controlplane.Options{AuditPolicy: auditPolicy})
}

func (p *pool) take() *controlplane.Cluster {
	p.lock.Lock()
	defer p.lock.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

func (p *pool) put(c *controlplane.Cluster) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.free = append(p.free, c)
}

func (p *pool) stop() error {
	var errs []error
	for _, c := range p.free {
		errs = append(errs, c.Stop())
	}
	return errors.Join(errs...)
}

type stage struct {
	*controlplane.Cluster
	since time.Time
	name  string        // unlike that of any other
	pause time.Duration // between the deletions of pods
}

var (
	stages sync.Map // test name → *stage
	played atomic.Int64
)

// here is the stage of a test.
func here(t *testing.T) *stage {
	t.Helper()
	s, ok := stages.Load(t.Name())
	if !ok {
		t.Fatal("the test has no stage: begin it with busy or quiet")
	}
	return s.(*stage)
}

func busy(t *testing.T) {
	t.Helper()
	t.Parallel()
	play(t, 100*time.Millisecond)
}

// quiet begins a test that mostly waits.
func quiet(t *testing.T) {
	t.Helper()
	t.Parallel()
	play(t, time.Second)
}

func play(t *testing.T, pause time.Duration) {
	t.Helper()
	c, err := clusters.get()
	if err != nil {
		t.Fatal(err)
	}
	stages.Store(t.Name(), &stage{Cluster: c, since: time.Now(), name: fmt.Sprintf("%s-%d", t.Name(), played.Add(1)), pause: pause})
	t.Cleanup(func() {
		stages.Delete(t.Name())
		if !t.Failed() {
			clusters.put(c)
		} else if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}
