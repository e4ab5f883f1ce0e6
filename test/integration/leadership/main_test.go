// Package leadership tests failover with real processes on a real API server, each behind a fault proxy. The audit log
// shows whether every write was sent under the lease; a watch shows that a ReplicaSet never had surplus pods.
//
// The lease is 6 s instead of 15 s, so that tests are short. They mostly wait, so they run in parallel, each with its
// own control plane.
package leadership

import (
	"flag"
	"fmt"
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

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil { // the flag -parallel replaces this
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var clusters sync.Map // test name → *controlplane.Cluster

// startCluster starts the control plane of a test and lets the test run in parallel.
func startCluster(t *testing.T) {
	t.Helper()
	t.Parallel()
	c, err := controlplane.Start(controlplane.Options{AuditPolicy: auditPolicy})
	controlplane.Must(t, err)
	clusters.Store(t.Name(), c)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// here returns the control plane of a test.
func here(t *testing.T) *controlplane.Cluster {
	t.Helper()
	c, ok := clusters.Load(t.Name())
	if !ok {
		t.Fatal("the test has not called startCluster")
	}
	return c.(*controlplane.Cluster)
}
