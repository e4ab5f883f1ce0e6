//go:build tools

// Package kwok pins the simulator that plays the kubelets of make run.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
