package kcmtest_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"minikcm/kcmtest"
)

// cfg is the result of envtest's Environment.Start.
func ExampleStart() {
	var cfg *rest.Config
	_ = func(t *testing.T) {
		kcmtest.Start(t, cfg, kcmtest.PodsReady())
		// Deployments make pods from here on, pods get ready, and namespaces that are deleted go.
	}
}
