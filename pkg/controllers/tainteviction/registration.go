package tainteviction

import (
	"time"

	"minikcm/pkg/controller"
)

// Config of the controller.
type Config struct {
	// Workers is the number of pods, and of nodes, that are processed at the same time. At least 1.
	Workers int
	// TrustWindow is the time from the start of a term to the first eviction for a taint of node health. Zero
	// does not wait.
	TrustWindow time.Duration
}

// Registration returns the registration of the controller, which has no flags. grace points to
// --node-monitor-grace-period.
func Registration(grace *time.Duration) controller.Registration {
	return controller.Registration{
		Name: Name, Agent: "node-controller", // as in kube-controller-manager
		WatchPermissions: []controller.Access{{Resource: "nodes"}, {Resource: "pods"}},
		Permissions: []controller.Access{
			{Resource: "nodes", Verbs: []string{"get"}, Impact: "cannot evict pods"},
			{Resource: "pods", Verbs: []string{"get", "delete"}, Impact: "cannot evict pods"},
			{Resource: "pods/status", Verbs: []string{"patch"}, Impact: "cannot evict pods"},
		},
		New: func(b controller.Base) (controller.Controller, error) {
			return newController(Config{Workers: controller.PodWorkers, TrustWindow: *grace}, b)
		},
	}
}
