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

	// ShutdownTimeout bounds the drain at shutdown and at a step-down. 0 waits for ever.
	ShutdownTimeout time.Duration
}

// margin returns the time between the last moment at which a write may run here and the first moment at which another process may
// write, for a lease that is renewed for the given duration. The margin covers clocks that run at different rates and the tail of a
// cancelled request: a tenth of the lease, at least a second, at most half of the time between renew deadline and lease.
// client-go accepts any lease longer than the renew deadline, so the margin may be as short as a tenth of a second.
func (c Config) margin(lease time.Duration) time.Duration {
	return max(100*time.Millisecond, min(max(time.Second, lease/10), (lease-c.RenewDeadline)/2))
}

// coolDown returns how long a process that stepped down does not compete for the lease, unless its caches catch up earlier.
func (c Config) coolDown() time.Duration { return 2 * c.LeaseDuration }

// ResourceLock is the only kind of lock.
const ResourceLock = "leases"

// rounded returns c with the lease rounded up to whole seconds, as the Lease stores it.
func (c Config) rounded() Config {
	if rest := c.LeaseDuration % time.Second; rest > 0 {
		c.LeaseDuration += time.Second - rest
	}
	return c
}
