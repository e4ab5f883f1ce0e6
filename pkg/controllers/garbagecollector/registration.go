package garbagecollector

import (
	"maps"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"minikcm/pkg/controller"
	"minikcm/pkg/flagcheck"
)

// Config is the configuration of the controller.
type Config struct {
	Enabled bool `json:"EnableGarbageCollector"` // false: the controller does not run, even if --controllers names it
	Workers int  `json:"ConcurrentGCSyncs"`      // concurrent syncs of objects, and as many of owners; at least 1

	DryRun bool `json:"DryRun"` // sends no writes; not in kube-controller-manager
	// Ignored are types whose objects are neither deleted nor released, as resource.group. Events are ignored in any
	// case.
	Ignored []string `json:"IgnoredResources"` // upstream has this field without a flag
}

// DefaultConfig returns the defaults of kube-controller-manager v1.37.
func DefaultConfig() *Config { return &Config{Enabled: true, Workers: 20} }

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Enabled, "enable-garbage-collector", c.Enabled,
		"Enable the garbage collector. false disables it even if --controllers names it. Must equal the flag of the API server.")
	fs.IntVar(&c.Workers, "concurrent-gc-syncs", c.Workers,
		"Objects, and owners in deletion, that are processed at the same time. Syncs that wait for the API server for more than 1 s do not count.")
	fs.BoolVar(&c.DryRun, "garbage-collector-dry-run", c.DryRun,
		"Log and count the writes of the garbage collector instead of sending them, for a trial beside another collector.")
	fs.StringSliceVar(&c.Ignored, "garbage-collector-ignored-resources", c.Ignored,
		"Types that the garbage collector ignores, as resource.group, besides events. Objects of these types are neither deleted with their owners nor released, "+
			"do not keep an owner, and keep their foregroundDeletion and orphan finalizers.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error {
	var p flagcheck.Problems
	p.Workers("concurrent-gc-syncs", c.Workers)
	for _, text := range c.Ignored {
		if schema.ParseGroupResource(text).Resource == "" || strings.Contains(text, "/") {
			p.Addf("garbage-collector-ignored-resources", "%q is not a resource, such as pods or jobs.batch", text)
		}
	}
	return p
}

// ignored returns the types that the collector ignores.
func (c *Config) ignored() map[schema.GroupResource]bool {
	types := maps.Clone(defaultIgnored)
	for _, text := range c.Ignored {
		types[schema.ParseGroupResource(text)] = true
	}
	return types
}

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "garbagecollector", Agent: "generic-garbage-collector",
		Disabled: func() bool { return !cfg.Enabled }, FollowsOwners: true,
		Config: cfg, Section: "GarbageCollectorController",
		WatchPermissions: []controller.Access{{Group: "*", Resource: "*"}},
		ReadOnly:         func() bool { return cfg.DryRun },
		Permissions: []controller.Access{
			{Group: "*", Resource: "*", Verbs: []string{"get", "list"}, Impact: "cannot check whether owners exist"},
			{Group: "*", Resource: "*", Verbs: []string{"patch"}, Impact: "cannot remove finalizers and owner references"},
			{Group: "*", Resource: "*", Verbs: []string{"delete"}, Impact: "cannot delete dependents"},
		},
		New: func(b controller.Base) (controller.Controller, error) { return newController(*cfg, b) },
	}
}
