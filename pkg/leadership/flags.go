package leadership

import (
	"time"

	"github.com/spf13/pflag"

	"minikcm/pkg/flagcheck"
)

// AddFlags binds the flags of leader election to c, with kube-controller-manager's names. The values
// of c are the defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Enabled, "leader-elect", c.Enabled,
		"Run controllers only while holding a Lease. With several replicas, one replica works.")
	fs.DurationVar(&c.LeaseDuration, "leader-elect-lease-duration", c.LeaseDuration,
		"Time without a renewal after which another replica may take the Lease. After a crash no replica works for this time, "+
			"or for up to 45 seconds while writes are slow (55 with --leader-elect-retry-period=5s). Rounded up to whole seconds.")
	fs.DurationVar(&c.RenewDeadline, "leader-elect-renew-deadline", c.RenewDeadline,
		"Time without a successful renewal after which a leader stops leading. Must be less than --leader-elect-lease-duration, by more than 0.1 s.")
	fs.DurationVar(&c.RetryPeriod, "leader-elect-retry-period", c.RetryPeriod,
		"Pause between two renewals. A standby reads a held Lease again after 1.5 to 2.5 times this pause, and retries a failed "+
			"acquisition of a free Lease after 0.5 to 1 times this pause.")
	fs.StringVar(&c.ResourceLock, "leader-elect-resource-lock", c.ResourceLock,
		"Kind of object to lock. Only 'leases'.")
	fs.StringVar(&c.Name, "leader-elect-resource-name", c.Name,
		"Name of the Lease. 'kube-controller-manager' takes turns with a kube-controller-manager that runs the same controllers.")
	fs.StringVar(&c.Namespace, "leader-elect-resource-namespace", c.Namespace,
		"Namespace of the Lease.")
	fs.DurationVar(&c.ShutdownTimeout, "controller-shutdown-timeout", c.ShutdownTimeout,
		"Time that running syncs have to finish after the process is told to stop. 0 waits forever.")
}

// Validate returns every problem, each with the name of the flag. The rules are those of
// component-base and of client-go's elector. With election off only ShutdownTimeout is checked.
func (c Config) Validate() []error {
	var p flagcheck.Problems
	p.NotNegative("controller-shutdown-timeout", c.ShutdownTimeout)
	if !c.Enabled {
		return p
	}
	given := c.LeaseDuration
	c = c.rounded()
	switch {
	case given <= 0:
		p.Addf("leader-elect-lease-duration", "must be greater than zero")
	case given <= c.RenewDeadline:
		p.Addf("leader-elect-lease-duration", "must be greater than the renew deadline of %v", c.RenewDeadline)
	case c.LeaseDuration-c.RenewDeadline <= c.margin(c.LeaseDuration):
		p.Addf("leader-elect-lease-duration", "must exceed the renew deadline of %v by more than the safety margin of %v", c.RenewDeadline, c.margin(c.LeaseDuration))
	}
	switch slowest := time.Duration(renewJitter * float64(c.RetryPeriod)); {
	case c.RenewDeadline <= 0:
		p.Addf("leader-elect-renew-deadline", "must be greater than zero")
	case c.RenewDeadline <= slowest:
		p.Addf("leader-elect-renew-deadline", "must be greater than %v times the retry period of %v", renewJitter, c.RetryPeriod)
	}
	if c.RetryPeriod <= 0 {
		p.Addf("leader-elect-retry-period", "must be greater than zero")
	}
	if c.ResourceLock != "" && c.ResourceLock != ResourceLock {
		p.Addf("leader-elect-resource-lock", "%q: resourceLock value must be %q", c.ResourceLock, ResourceLock)
	}
	if c.Namespace == "" {
		p.Addf("leader-elect-resource-namespace", "must not be empty")
	}
	if c.Name == "" {
		p.Addf("leader-elect-resource-name", "must not be empty")
	}
	return p
}
