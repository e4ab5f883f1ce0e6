package leadership

import (
	"fmt"
	"time"
)

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

// FieldError is one invalid field of Config.
type FieldError struct {
	Field string // name of the field of Config
	Err   error
}

// Error implements error.
func (e FieldError) Error() string { return fmt.Sprintf("%s: %v", e.Field, e.Err) }

// Unwrap returns the reason.
func (e FieldError) Unwrap() error { return e.Err }

// DefaultMargin covers clocks that run at different rates and the tail of a request that was cut: a tenth of the lease and at least a
// second, but no more than half of what the renew deadline leaves of it: client-go asks for no more than a lease longer than its renew
// deadline. It is never less than a tenth of a second.
func DefaultMargin(lease, renewDeadline time.Duration) time.Duration {
	return max(100*time.Millisecond, min(max(time.Second, lease/10), (lease-renewDeadline)/2))
}

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

// Validate returns every problem of c, in the order of its fields. Nothing is checked if election is off.
func (c Config) Validate() []FieldError {
	if !c.Enabled {
		return nil
	}
	var errs []FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, FieldError{field, fmt.Errorf(format, args...)})
	}
	given := c.LeaseDuration
	c = c.withDefaults()
	switch {
	case given <= 0:
		bad("LeaseDuration", "must be greater than zero")
	case given <= c.RenewDeadline:
		bad("LeaseDuration", "must be greater than the renew deadline of %v", c.RenewDeadline)
	case c.LeaseDuration-c.RenewDeadline <= c.Margin:
		bad("LeaseDuration", "must exceed the renew deadline of %v by more than the safety margin of %v", c.RenewDeadline, c.Margin)
	}
	switch slowest := time.Duration(renewJitter * float64(c.RetryPeriod)); {
	case c.RenewDeadline <= 0:
		bad("RenewDeadline", "must be greater than zero")
	case c.RenewDeadline <= slowest:
		bad("RenewDeadline", "must be greater than %v times the retry period of %v", renewJitter, c.RetryPeriod)
	}
	if c.RetryPeriod <= 0 {
		bad("RetryPeriod", "must be greater than zero")
	}
	if c.Namespace == "" {
		bad("Namespace", "must not be empty")
	}
	if c.Name == "" {
		bad("Name", "must not be empty")
	}
	if c.Identity == "" {
		bad("Identity", "must not be empty")
	}
	if c.Margin < 0 {
		bad("Margin", "must not be negative")
	}
	if c.ShutdownTimeout < 0 {
		bad("ShutdownTimeout", "must not be negative")
	}
	if c.CoolDown < 0 {
		bad("CoolDown", "must not be negative")
	}
	return errs
}
