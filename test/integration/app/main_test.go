// Package app tests the daemon as a whole on a real API server: start, signals and watches.
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

func manager(t *testing.T) []string {
	return []string{"--kubeconfig=" + cluster.ManagerKubeconfig(t, "manager"), "--secure-port=0"}
}
