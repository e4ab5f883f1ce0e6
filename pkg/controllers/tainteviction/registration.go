package tainteviction

import (
	"time"

	"minikcm/pkg/controller"
)

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
		New: func(b controller.Base) (controller.Controller, error) { return newController(*grace, b) },
	}
}
