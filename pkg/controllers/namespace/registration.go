package namespace

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"

	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
)

// Config is the configuration of the controller.
type Config struct {
	Workers int `json:"ConcurrentNamespaceSyncs"` // at least 1
	// SyncPeriod is the longest time from a successful sync of a terminating namespace to the next sync. Validate
	// rejects zero.
	SyncPeriod time.Duration `json:"NamespaceSyncPeriod"`
	// Grace is the time from the first sight of a deletion to the deletion of types other than pods. Less than
	// 5 s is for exactly one API server, and zero means 100 ms. A create that takes longer outlives its
	// namespace.
	Grace time.Duration `json:"NamespaceDeletionGracePeriod"` // ours
}

// DefaultConfig returns the values of kube-controller-manager v1.37, where the grace period is a constant.
func DefaultConfig() *Config {
	return &Config{Workers: 10, SyncPeriod: 5 * time.Minute, Grace: 5 * time.Second}
}

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Workers, "concurrent-namespace-syncs", c.Workers,
		"Namespaces worked on at the same time. Syncs that take more than 10 s do not count.")
	fs.DurationVar(&c.SyncPeriod, "namespace-sync-period", c.SyncPeriod,
		"How often a terminating namespace is checked again even if nothing happened.")
	fs.DurationVar(&c.Grace, "namespace-deletion-grace-period", c.Grace,
		"Content other than pods is deleted, and the namespace finalized, no earlier than this after its deletion, so that "+
			"every API server knows of the deletion and rejects creates. 0 is for exactly one API server and means 100 ms: a create that "+
			"admission webhooks hold up for longer outlives its namespace.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	p.Workers("concurrent-namespace-syncs", c.Workers)
	p.Positive("namespace-sync-period", c.SyncPeriod)
	p.NotNegative("namespace-deletion-grace-period", c.Grace)
	return p
}

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "namespace", Agent: Name,
		Config: cfg, Section: "NamespaceController",
		WatchPermissions: []controller.Access{{Resource: "namespaces"}, {Resource: "pods"}},
		Permissions: []controller.Access{
			{Resource: "namespaces", Verbs: []string{"get"}, Impact: "cannot empty namespaces"},
			{Resource: "namespaces/status", Verbs: []string{"update"}, Impact: "cannot report what blocks a namespace"},
			{Resource: "namespaces/finalize", Verbs: []string{"update"}, Impact: "cannot let namespaces go"},
			{Group: "*", Resource: "*", Verbs: []string{"list", "delete", "deletecollection"}, Impact: "cannot empty namespaces"},
			{NonResource: "/api", Verbs: []string{"get"}, Impact: "cannot discover the types"},
			{NonResource: "/apis", Verbs: []string{"get"}, Impact: "cannot discover the types"},
			{NonResource: "/readyz", Verbs: []string{"get"}, Impact: "may miss custom resources while the API server starts", Optional: true},
		},
		New: func(b controller.Base) (controller.Controller, error) {
			metadata, err := newMetadataClient(b.REST)
			if err != nil {
				return nil, err
			}
			discovery, err := discovery.NewDiscoveryClientForConfig(b.REST)
			if err != nil {
				return nil, fmt.Errorf("build the discovery client: %w", err)
			}
			return newController(*cfg, b, metadata, discovery)
		},
	}
}
