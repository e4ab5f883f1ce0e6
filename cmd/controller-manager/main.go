// Command controller-manager runs the ReplicaSet, node, taint eviction, pod garbage
// collection and namespace controllers of a Kubernetes control plane.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"minikcm/pkg/app"
)

func main() {
	// cli.Run prints usage for a bad command line, logs any later error, and flushes the log;
	// it returns 0 for a clean end and 1 otherwise.
	os.Exit(cli.Run(app.NewCommand()))
}
