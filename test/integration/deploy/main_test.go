// Package deploy tests deploy/ and docs/: every object is valid, the rights suffice, manifests fit the program's flags,
// alerts and dashboard query existing metrics. TestDeployGrantsExactlyWhatIsRequired in pkg/app compares the rights
// with the needs of the controllers.
package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/pkg/controller"
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
		// Off by default; some of the rights are for this plugin.
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
	controlplane.Must(t, err)
	return path
}

// read returns the text of a file of the repository.
func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elem...))
	controlplane.Must(t, err)
	return text
}

func sortedNames(controllers []controller.Registration) (names []string) {
	for _, c := range controllers {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names
}
