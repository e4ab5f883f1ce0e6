package deployment

import (
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/gates"
	"minikcm/pkg/flagcheck"
)

// Config is the configuration of the controller.
type Config struct {
	Workers int `json:"ConcurrentDeploymentSyncs"` // concurrent syncs, slow ones excluded; at least 1

	TerminatingReplicas bool `json:"-"` // feature gate
}

// DefaultConfig returns the defaults of kube-controller-manager v1.37.
func DefaultConfig() *Config { return &Config{Workers: 5} }

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Workers, "concurrent-deployment-syncs", c.Workers,
		"Deployments worked on at the same time. Syncs that wait for the API server for more than 0.1 s do not count.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	p.Workers("concurrent-deployment-syncs", c.Workers)
	return p
}

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "deployment", Agent: Name,
		Gates: map[featuregate.Feature]featuregate.VersionedSpecs{
			gates.TerminatingReplicas: gates.TerminatingReplicasStages(),
		},
		Config: cfg, Section: "DeploymentController",
		WatchPermissions: []controller.Access{
			{Group: "apps", Resource: "deployments"}, {Group: "apps", Resource: "replicasets"}, {Resource: "pods"}, {Resource: "namespaces"},
		},
		Permissions: []controller.Access{
			{Group: "apps", Resource: "deployments", Verbs: []string{"get"}, Impact: "cannot adopt ReplicaSets or write the first time in a term"},
			{Group: "apps", Resource: "deployments", Verbs: []string{"list"}, Impact: "reads every Deployment live in each term", Optional: true},
			{Group: "apps", Resource: "deployments/status", Verbs: []string{"update"}, Impact: "cannot report the progress of rollouts"},
			{Group: "apps", Resource: "deployments/finalizers", Verbs: []string{"update"}, Impact: "cannot create ReplicaSets that keep their owner"},
			{Group: "apps", Resource: "replicasets", Verbs: []string{"get", "list"}, Impact: "cannot write the first time in a term or after a lost response"},
			{Group: "apps", Resource: "replicasets", Verbs: []string{"create"}, Impact: "cannot begin a rollout"},
			{Group: "apps", Resource: "replicasets", Verbs: []string{"patch"}, Impact: "cannot scale, adopt or release ReplicaSets"},
			{Group: "apps", Resource: "replicasets", Verbs: []string{"delete"}, Impact: "cannot clean up the history"},
		},
		New: func(b controller.Base) (controller.Controller, error) {
			c := *cfg
			c.TerminatingReplicas = b.Enabled(gates.TerminatingReplicas)
			return newController(c, b)
		},
	}
}
