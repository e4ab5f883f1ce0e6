package endpointslice

import (
	"time"

	"github.com/spf13/pflag"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
)

// Config is the configuration of the controller. Flags and limits are upstream's.
type Config struct {
	Workers      int32         `json:"ConcurrentServiceEndpointSyncs"`
	MaxEndpoints int32         `json:"MaxEndpointsPerSlice"`
	BatchPeriod  time.Duration `json:"EndpointUpdatesBatchPeriod"`
}

// DefaultConfig returns the defaults of kube-controller-manager v1.37.
func DefaultConfig() *Config { return &Config{Workers: 5, MaxEndpoints: 100} }

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.Int32Var(&c.Workers, "concurrent-service-endpoint-syncs", c.Workers,
		"Services whose EndpointSlices are computed at the same time, 1 to 50. Syncs that wait for the API server for more than 1 s do not count.")
	fs.Int32Var(&c.MaxEndpoints, "max-endpoints-per-slice", c.MaxEndpoints,
		"Endpoints in one EndpointSlice, 1 to 1000. Larger slices are fewer, but each change sends a whole slice.")
	fs.DurationVar(&c.BatchPeriod, "endpointslice-updates-batch-period", c.BatchPeriod,
		"Delay between a change of a pod and that of its EndpointSlices, up to 1m. Changes within the delay are written together.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	if c.Workers < 1 || c.Workers > 50 {
		p.Addf("concurrent-service-endpoint-syncs", "%d is not in the range 1 to 50", c.Workers)
	}
	if c.MaxEndpoints < 1 || c.MaxEndpoints > 1000 {
		p.Addf("max-endpoints-per-slice", "%d is not in the range 1 to 1000", c.MaxEndpoints)
	}
	if c.BatchPeriod < 0 || c.BatchPeriod > time.Minute {
		p.Addf("endpointslice-updates-batch-period", "%v is not in the range 0s to 1m0s", c.BatchPeriod)
	}
	return p
}

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	const group = "discovery.k8s.io"
	return controller.Registration{
		Name: Name, Alias: "endpointslice", Agent: Name,
		Config: cfg, Section: "EndpointSliceController",
		WatchPermissions: []controller.Access{{Resource: "services"}, {Resource: "pods"}, {Resource: "nodes"}, {Group: group, Resource: "endpointslices"}},
		CachedFields:     caches.PodEndpoint | caches.NodeCPU,
		Permissions: []controller.Access{
			{Group: group, Resource: "endpointslices", Verbs: []string{"list", "create", "update", "delete"}, Impact: "cannot keep the endpoints of Services"},
			{Resource: "services", Verbs: []string{"get", "list"}, Impact: "cannot write EndpointSlices after a conflict or change of leader"},
			{Resource: "pods", Verbs: []string{"list"}, Impact: "cannot write EndpointSlices after a conflict or change of leader"},
			{Resource: "services/finalizers", Verbs: []string{"update"}, Impact: "cannot set blockOwnerDeletion of EndpointSlices"},
		},
		New: func(b controller.Base) (controller.Controller, error) { return newController(*cfg, b) },
	}
}
