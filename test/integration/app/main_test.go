// Package app tests the daemon as a whole on a real API server: how it starts, what it watches, and what it says when it cannot
// work. What the controllers do is tested in the packages beside this one.
package app

import (
	"os"
	"testing"

	"minikcm/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// manager is how the manager reaches the API server, and that it has no endpoint of its own.
func manager(t *testing.T) []string {
	return []string{"--kubeconfig=" + cluster.ManagerKubeconfig(t, "manager"), "--secure-port=0"}
}
