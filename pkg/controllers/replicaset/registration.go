package replicaset

import (
	"github.com/spf13/pflag"
	apiversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/gates"
	"minikcm/pkg/flagcheck"
)

// podDeletionCost is upstream's gate for the annotation that influences which pod of a ReplicaSet is deleted first.
const podDeletionCost featuregate.Feature = "PodDeletionCost"

// Config is the configuration of the controller.
type Config struct {
	Workers int `json:"ConcurrentRSSyncs"` // concurrent syncs, slow ones excluded; at least 1

	PodDeletionCost     bool `json:"-"`
	TerminatingReplicas bool `json:"-"`
}

// DefaultConfig returns the defaults of kube-controller-manager v1.37.
func DefaultConfig() *Config { return &Config{Workers: 5} }

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Workers, "concurrent-replicaset-syncs", c.Workers,
		"ReplicaSets worked on at the same time. Syncs that wait for the API server for more than 0.1 s do not count.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	p.Workers("concurrent-replicaset-syncs", c.Workers)
	return p
}

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "replicaset", Agent: Name,
		Gates: map[featuregate.Feature]featuregate.VersionedSpecs{
			podDeletionCost: {
				{Version: apiversion.MajorMinor(1, 21), Default: false, PreRelease: featuregate.Alpha},
				{Version: apiversion.MajorMinor(1, 22), Default: true, PreRelease: featuregate.Beta},
			},
			gates.TerminatingReplicas: gates.TerminatingReplicasStages(),
		},
		Config: cfg, Section: "ReplicaSetController",
		WatchPermissions: []controller.Access{{Group: "apps", Resource: "replicasets"}, {Resource: "pods"}, {Resource: "namespaces"}},
		Permissions: []controller.Access{
			{Group: "apps", Resource: "replicasets", Verbs: []string{"get"}, Impact: "cannot adopt pods or write the first time in a term"},
			{Group: "apps", Resource: "replicasets", Verbs: []string{"list"}, Impact: "reads pods live before the first write of each ReplicaSet in a term", Optional: true},
			{Group: "apps", Resource: "replicasets/status", Verbs: []string{"update"}, Impact: "cannot report the number of pods"},
			{Group: "apps", Resource: "replicasets/finalizers", Verbs: []string{"update"}, Impact: "cannot create pods that keep their owner"},
			{Resource: "pods", Verbs: []string{"list"}, Impact: "cannot write the first time in a term or after a lost response"},
			{Resource: "pods", Verbs: []string{"create"}, Impact: "cannot create pods"},
			{Resource: "pods", Verbs: []string{"patch"}, Impact: "cannot adopt or release pods"},
			{Resource: "pods", Verbs: []string{"delete"}, Impact: "cannot delete pods"},
		},
		New: func(b controller.Base) (controller.Controller, error) {
			c := *cfg
			c.PodDeletionCost, c.TerminatingReplicas = b.Enabled(podDeletionCost), b.Enabled(gates.TerminatingReplicas)
			return newController(c, b)
		},
	}
}
