// Package leadership tests failover with real processes on a real API server, each behind a fault proxy of its own. What a test asserts
// is what the API server saw: from its audit log, that nobody wrote without the lease; from a watch of its own, that a ReplicaSet never
// had more pods than it asks for.
//
// The managers run with a lease of 6 s instead of 15 s, so that tests which wait for it are short.
package leadership

import (
	"os"
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

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{AuditPolicy: auditPolicy}, func(c *controlplane.Cluster) { cluster = c }))
}
