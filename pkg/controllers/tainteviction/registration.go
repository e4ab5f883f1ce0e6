package tainteviction

import (
	"time"

	"minikcm/pkg/controller"
)

// Config of the controller.
type Config struct {
	// Workers is how many pods, and how many nodes, are worked on at once. At least 1; upstream has 8 for deciding and no limit for
	// deleting.
	Workers int
	// TrustWindow is how long a new term waits before it evicts for the taints of node health: the time a node may be silent
	// (--node-monitor-grace-period). Zero does not wait.
	TrustWindow time.Duration
	// Drain is how long evictions that are under way may go on after the end of a term; zero until they end.
	Drain time.Duration
}

// Registration returns the controller as the manager knows it. It has no flags: grace is where the node lifecycle controller keeps how long a
// node may be silent.
func Registration(grace *time.Duration) controller.Registration {
	return controller.Registration{
		Name: Name, Agent: "node-controller", // upstream's for all loops of nodes
		WatchPermissions: []controller.Access{{Resource: "nodes"}, {Resource: "pods"}},
		Permissions: []controller.Access{
			{Resource: "nodes", Verbs: []string{"get"}, Impact: "cannot evict pods"},
			{Resource: "pods", Verbs: []string{"get", "delete"}, Impact: "cannot evict pods"},
			{Resource: "pods/status", Verbs: []string{"patch"}, Impact: "cannot evict pods"},
		},
		New: func(b controller.Base) (controller.Controller, error) {
			deps := Deps{Client: b.Client, Recorder: b.Recorder(Name), Clock: b.Clock, Metrics: b.Metrics}
			var err error
			if deps.Nodes, err = b.Caches.Nodes(); err != nil {
				return nil, err
			}
			if deps.Pods, err = b.Caches.Pods(); err != nil {
				return nil, err
			}
			return New(Config{Workers: controller.PodWorkers, TrustWindow: *grace, Drain: b.Drain}, deps)
		},
	}
}
