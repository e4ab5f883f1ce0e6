package podgc

import (
	"time"

	"github.com/spf13/pflag"

	"minikcm/pkg/controller"
)

// Config is the configuration of the controller.
type Config struct {
	// TerminatedPodThreshold is the number of finished pods that may exist. Zero or less sets no limit.
	TerminatedPodThreshold int `json:"TerminatedPodGCThreshold"`
	// Quarantine is the time that a node must be missing before its pods are orphans.
	Quarantine time.Duration `json:"-"`
	// Period is the interval between two counts of the finished pods. Positive.
	Period time.Duration `json:"-"`
}

// DefaultConfig is that of kube-controller-manager v1.37, where Quarantine and Period are constants.
func DefaultConfig() *Config {
	return &Config{TerminatedPodThreshold: 12500, Quarantine: 40 * time.Second, Period: 20 * time.Second}
}

// AddFlags implements controller.Config.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.TerminatedPodThreshold, "terminated-pod-gc-threshold", c.TerminatedPodThreshold,
		"Finished pods that may exist before the surplus is deleted. 0 or less keeps all.")
}

// Validate implements controller.Config.
func (c *Config) Validate() []error { return nil }

// Registration returns the registration of the controller. Flags are bound to cfg.
func Registration(cfg *Config) controller.Registration {
	return controller.Registration{
		Name: Name, Alias: "podgc", Agent: "pod-garbage-collector",
		Config: cfg, Section: "PodGCController",
		WatchPermissions: []controller.Access{{Resource: "nodes"}, {Resource: "pods"}},
		Permissions: []controller.Access{
			{Resource: "nodes", Verbs: []string{"get"}, Impact: "cannot remove the pods of a node that is gone or out of service"},
			{Resource: "pods", Verbs: []string{"list", "delete"}, Impact: "cannot remove pods"},
			{Resource: "pods/status", Verbs: []string{"patch"}, Impact: "cannot remove pods that have not ended"},
		},
		New: func(b controller.Base) (controller.Controller, error) { return newController(*cfg, b) },
	}
}
