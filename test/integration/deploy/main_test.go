// Package deploy tests deploy/ and docs/: every object is valid, no right is missing or unused, manifests fit the
// program's flags, alerts and dashboard query existing metrics. Tests with openssl are skipped where it is missing.
package deploy

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/test/controlplane"
)

var (
	cluster *controlplane.Cluster
	admin   client.Client
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md and deploy/prometheus-operator/prometheusrule.yaml")

// The parts of the repository under test.
const (
	deployDir = "../../../deploy"
	docsDir   = "../../../docs"
)

func TestMain(m *testing.M) {
	flag.Parse()
	o := controlplane.Options{Audit: true, APIServerArgs: map[string][]string{
		// Off by default; one of the rights is for this plugin.
		"enable-admission-plugins": {"OwnerReferencesPermissionEnforcement"},
	}}
	os.Exit(controlplane.Run(m, o, func(c *controlplane.Cluster) {
		cluster = c
		var err error
		if admin, err = controlplane.NewClient(c.Config()); err != nil {
			panic(err)
		}
	}))
}

// built returns the path of a program that make builds.
func built(t *testing.T, name string) string {
	t.Helper()
	path, err := controlplane.Binary(name)
	must(t, err)
	return path
}

// program returns the path of a program that not every machine has, or skips the test.
func program(t *testing.T, name, from string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (%s)", name, from)
	}
	return path
}

// read returns the text of a file of the repository.
func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elem...))
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
