package controlplane

import (
	"os"
	"testing"
)

var cluster *Cluster

func TestMain(m *testing.M) {
	os.Exit(Run(m, Options{Audit: true, SecondAPIServer: true}, func(c *Cluster) { cluster = c }))
}
