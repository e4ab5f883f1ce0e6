// Package leadership tests failover with real processes on a real API server, each behind a fault proxy of its own. What a test asserts
// is what the API server saw: from its audit log, that nobody wrote without the lease; from a watch of its own, that a ReplicaSet never
// had more pods than it asks for.
//
// The managers run with a lease of 6 s instead of 15 s, so that tests which wait for it are short.
package leadership

import (
	"os"
	"sync"
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
	"--controllers=replicaset", "--secure-port=0", "-v=2",
}

// auditPolicy keeps the body of writes to Leases, which says who holds them.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: Request
  verbs: [create, update, patch, delete]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
`

var shared *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{AuditPolicy: auditPolicy}, func(c *controlplane.Cluster) { shared = c }))
}

var own sync.Map // test name → *controlplane.Cluster

// here is the cluster of a test. Tests share one, and run one after the other, because a manager works on all ReplicaSets there are.
func here(t *testing.T) *controlplane.Cluster {
	if c, ok := own.Load(t.Name()); ok {
		return c.(*controlplane.Cluster)
	}
	return shared
}

// alone gives a test that mostly waits a cluster of its own, and lets it run beside the others of its kind.
func alone(t *testing.T) {
	t.Helper()
	t.Parallel()
	c, err := controlplane.Start(controlplane.Options{AuditPolicy: auditPolicy})
	if err != nil {
		t.Fatal(err)
	}
	own.Store(t.Name(), c)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}
