package leadership

import "time"

// Config says how the lease is held. It is immutable.
type Config struct {
	// Enabled false means one endless term without a lease.
	Enabled bool

	// LeaseDuration is how long others wait after the last change of the Lease they saw. It is written to
	// the Lease in whole seconds; what is below a second is not relied on.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader goes on trying to renew before it ends its term.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between renewals. A standby tries again after 0.5 to 1 times as long if it could not take a lease that is free, and looks at one
	// that is held after 1.5 to 2.5 times as long.
	RetryPeriod time.Duration

	// Namespace and Name say which Lease.
	Namespace, Name string
	// ResourceLock is the kind of lock. Only [ResourceLock] exists, and empty means the same.
	ResourceLock string
	// Identity is this process as written to the Lease; see NewIdentity.
	Identity string

	// Margin is kept between the last moment a write may still be running here and the first moment
	// another process may write. 0 means DefaultMargin.
	Margin time.Duration
	// ShutdownTimeout bounds the drain at shutdown and at a step-down. 0 waits for ever.
	ShutdownTimeout time.Duration
	// CoolDown is how long a process that stepped down stays out of the election if it does not catch up
	// earlier. 0 means two lease durations.
	CoolDown time.Duration
}

// DefaultMargin covers clocks that run at different rates and the tail of a request that was cut: a tenth of the lease and at least a
// second, but no more than half of what the renew deadline leaves of it: client-go asks for no more than a lease longer than its renew
// deadline. It is never less than a tenth of a second.
func DefaultMargin(lease, renewDeadline time.Duration) time.Duration {
	return max(100*time.Millisecond, min(max(time.Second, lease/10), (lease-renewDeadline)/2))
}

// ResourceLock is the only kind of lock.
const ResourceLock = "leases"

// withDefaults fills in what was left zero. A lease is rounded up to whole seconds, which is what others see of it.
func (c Config) withDefaults() Config {
	if rest := c.LeaseDuration % time.Second; rest > 0 {
		c.LeaseDuration += time.Second - rest
	}
	if c.Margin == 0 {
		c.Margin = DefaultMargin(c.LeaseDuration, c.RenewDeadline)
	}
	if c.CoolDown == 0 {
		c.CoolDown = max(0, 2*c.LeaseDuration)
	}
	return c
}
