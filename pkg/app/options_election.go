package app

import (
	"time"

	"github.com/spf13/pflag"

	"minikcm/pkg/flagcheck"
	"minikcm/pkg/leadership"
)

// LeaderElectionOptions are kube-controller-manager's. Identity and ShutdownTimeout come from elsewhere.
type LeaderElectionOptions struct {
	leadership.Config
	ResourceLock string // leasesLock
}

func (o *LeaderElectionOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "leader-elect", o.Enabled,
		"Work only while holding a Lease, so that several replicas can run and only one works.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration,
		"Others may take the Lease when they have seen no renewal for this long. After a crash this is how long nobody works; while writes are slow, it is up to 45 seconds (55 with --leader-elect-retry-period=5s). Rounded up to whole seconds.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline,
		"A leader that has not been able to renew for this long stops leading. Must be less than --leader-elect-lease-duration, by more than 0.1 s.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod,
		"Pause between two renewals. A standby looks at a Lease that is held after 1.5 to 2.5 times as long, and tries again after half of it to all of it if it could not take one that is free.")
	fs.StringVar(&o.ResourceLock, "leader-elect-resource-lock", o.ResourceLock,
		"Kind of object to lock. Only 'leases'.")
	fs.StringVar(&o.Name, "leader-elect-resource-name", o.Name,
		"Name of the Lease. 'kube-controller-manager' takes turns with a kube-controller-manager that runs the same controllers.")
	fs.StringVar(&o.Namespace, "leader-elect-resource-namespace", o.Namespace,
		"Namespace of the Lease.")
}

// validate follows component-base's and client-go's own rules, which kube-controller-manager finds out about only when
// the elector panics.
func (o *LeaderElectionOptions) validate() []error {
	if !o.Enabled {
		return nil
	}
	var p flagcheck.Problems
	for _, err := range o.config("any", 0).Validate() {
		p.Addf(electionFlags[err.Field], "%w", err.Err)
	}
	if o.ResourceLock != leasesLock {
		p.Addf("leader-elect-resource-lock", `%q: resourceLock value must be "leases"`, o.ResourceLock)
	}
	return p
}

// electionFlags are the flags behind the fields of leadership.Config.
var electionFlags = map[string]string{
	"LeaseDuration":   "leader-elect-lease-duration",
	"RenewDeadline":   "leader-elect-renew-deadline",
	"RetryPeriod":     "leader-elect-retry-period",
	"Namespace":       "leader-elect-resource-namespace",
	"Name":            "leader-elect-resource-name",
	"ShutdownTimeout": "controller-shutdown-timeout",
}

// config adds what is no flag of the election.
func (o *LeaderElectionOptions) config(identity string, shutdownTimeout time.Duration) leadership.Config {
	cfg := o.Config
	cfg.Identity, cfg.ShutdownTimeout = identity, shutdownTimeout
	return cfg
}
