package leadership

import (
	"math"
	"time"

	"github.com/spf13/pflag"

	"minikcm/pkg/flagcheck"
)

// Config configures an Elector. It is immutable.
type Config struct {
	// Enabled is false for one endless term without a lease.
	Enabled bool

	// LeaseDuration is the time after which other processes may take a Lease that was not renewed. The
	// Lease holds whole seconds.
	LeaseDuration time.Duration
	// RenewDeadline is the time that the attempts of one renewal have before a leader ends its term. They
	// begin RetryPeriod after the last renewal.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between renewals. A standby that failed to take a free lease pauses for
	// 0.5 to 1 retry periods. A standby reads a held lease every 1.5 to 2.5 retry periods.
	RetryPeriod time.Duration

	// Namespace and Name identify the Lease.
	Namespace, Name string
	// ResourceLock is the kind of lock, [ResourceLock] or empty.
	ResourceLock string
	// Identity is the holder identity of this process; see NewIdentity.
	Identity string

	// ShutdownTimeout bounds the drain at shutdown and at a step-down. 0 means no bound.
	ShutdownTimeout time.Duration
}

// AddFlags binds the flags of leader election to c, with kube-controller-manager's names. The values
// of c are the defaults.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Enabled, "leader-elect", c.Enabled,
		"Run controllers only while holding a Lease. With several replicas, one replica works.")
	fs.DurationVar(&c.LeaseDuration, "leader-elect-lease-duration", c.LeaseDuration,
		"Time without a renewal after which another replica may take the Lease. After a crash no replica works for this time, "+
			"or for up to 45 seconds while writes are slow (55 with --leader-elect-retry-period=5s). Rounded up to whole seconds.")
	fs.DurationVar(&c.RenewDeadline, "leader-elect-renew-deadline", c.RenewDeadline,
		"Time for the attempts of one renewal, after which a leader stops leading. The first attempt is made "+
			"--leader-elect-retry-period after the last renewal. Must be less than --leader-elect-lease-duration, by more than 0.1 s.")
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
// component-base and of client-go's elector, and the safety margin. With election off only ShutdownTimeout is checked.
func (c Config) Validate() []error {
	var p flagcheck.Problems
	p.NotNegative("controller-shutdown-timeout", c.ShutdownTimeout)
	if !c.Enabled {
		return p
	}
	given := c.LeaseDuration
	c = c.rounded()
	switch {
	case given <= 0 || given > math.MaxInt32*time.Second: // the Lease has an int32
		p.Addf("leader-elect-lease-duration", "must be greater than zero and less than 68 years")
	case given <= c.RenewDeadline:
		p.Addf("leader-elect-lease-duration", "must be greater than the renew deadline of %v", c.RenewDeadline)
	case c.LeaseDuration-c.RenewDeadline <= c.margin(c.LeaseDuration):
		p.Addf("leader-elect-lease-duration", "must exceed the renew deadline of %v by more than the safety margin of %v",
			c.RenewDeadline, c.margin(c.LeaseDuration))
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

// renewJitter is client-go's JitterFactor: the renew deadline must be longer than the retry period by
// this factor.
const renewJitter = 1.2

// margin returns the time between the last moment at which a write may run here and the first moment
// at which another process may write, for a lease that is renewed for the given duration. The margin
// covers clocks that run at different rates and the tail of a cancelled request: a tenth of the lease,
// at least a second, at most half of the time between renew deadline and lease. client-go accepts any
// lease longer than the renew deadline, so the margin may be as short as a tenth of a second.
func (c Config) margin(lease time.Duration) time.Duration {
	return max(100*time.Millisecond, min(max(time.Second, lease/10), (lease-c.RenewDeadline)/2))
}

// coolDown returns how long a process that stepped down does not compete for the lease, unless its
// caches catch up earlier.
func (c Config) coolDown() time.Duration { return 2 * c.LeaseDuration }

// ResourceLock is the only kind of lock.
const ResourceLock = "leases"

// rounded returns c with the lease rounded up to whole seconds, as the Lease stores it.
func (c Config) rounded() Config {
	c.LeaseDuration = time.Duration(math.Ceil(c.LeaseDuration.Seconds())) * time.Second
	return c
}

// maxWriteDuration is the longest time that kube-apiserver v1.37 gives a write (endpoints/handlers,
// requestTimeoutUpperBound).
const maxWriteDuration = 34 * time.Second

// extendedFor is the time for which the lease stays extended after the last slow write. Most
// repetitions of a write come earlier.
const extendedFor = 30 * time.Second

// writeLimits are the time limits of writes after a renewal of the lease. The zero value has no limits.
type writeLimits struct {
	until       time.Time     // first moment at which no write may run any more
	maxDuration time.Duration // of a write, if renewals succeed in time
	slowAfter   time.Duration // a longer write shows that the configured lease may be too short
	margin      time.Duration // between the end of a write and the first write of another process
}

func (l writeLimits) isLimited() bool { return !l.until.IsZero() }

// limitsAfter returns the limits of writes after a renewal for the given duration. Other processes may
// have seen the renewal, and counted the duration in whole seconds, from the moment at which the
// renewal was sent.
func (c Config) limitsAfter(sent time.Time, lease time.Duration) writeLimits {
	margin := c.margin(lease)
	configured := min(maxWriteDuration, c.LeaseDuration-c.margin(c.LeaseDuration)-c.RetryPeriod)
	return writeLimits{
		until:       sent.Add(lease - margin),
		maxDuration: min(maxWriteDuration, lease-margin-c.RetryPeriod),
		slowAfter:   configured / 2,
		margin:      margin,
	}
}

// extendedLease returns a duration in whole seconds that covers maxWriteDuration and three retry
// periods for failed renewals: 45 s with the default flags. A lease of 15 s leaves a write 11.5 s, but
// admission may need the 34 s that the API server allows. Other processes use the duration in the
// Lease, so no other process must support extended leases.
func (c Config) extendedLease() time.Duration {
	// The margin is at most a tenth of the extended lease.
	seconds := math.Ceil((maxWriteDuration + 3*c.RetryPeriod).Seconds() / 0.9)
	return max(c.LeaseDuration, time.Duration(seconds)*time.Second)
}

// renewalDurations returns the duration of the next renewal, and the part of the duration from which
// deadlines of writes may be computed once the renewal is confirmed. Both are extended while writes
// are slow. After that, new writes get the short deadline at once, and the renewals stay extended
// until the short lease covers unknownUntil, when all earlier writes have completed.
func renewalDurations(slow bool, unknownUntil, now time.Time, short, extended time.Duration) (renewal, confirmed time.Duration) {
	switch {
	case slow:
		return extended, extended
	case unknownUntil.After(now.Add(short)):
		return extended, short
	}
	return short, short
}
