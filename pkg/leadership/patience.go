package leadership

import (
	"math"
	"time"

	"k8s.io/klog/v2"
)

// A lease of 15 s leaves a write 11 s, and kube-apiserver allows it 34 s: what admission holds up for longer would never be done. So when
// writes turn out to be slow the leader renews for longer, and writes that are sent when that is confirmed have all the time the API
// server would give them. Others go by the duration in the record, so nobody has to know of this.

// writeLimit is the most a write may take: kube-apiserver v1.37 gives it no more (endpoints/handlers, requestTimeoutUpperBound).
const maxWriteDuration = 34 * time.Second

// patienceHold is for how long after the last slow write the lease stays long: for longer than a controller waits before it repeats one.
const extendedFor = 30 * time.Second

// allowance is how long writes may take, as the lease was last renewed. The zero value has no limits.
type writeLimits struct {
	until       time.Time     // first moment at which no write may be running any more
	maxDuration time.Duration // one write may take; what every write has if renewals come in time
	slowAfter   time.Duration // a write that has taken so long shows that the short lease may not do
	margin      time.Duration // kept between the end of a write and the first one of another process
}

func (a writeLimits) isLimited() bool { return !a.until.IsZero() }

// allowed is what writes may take after a renewal for a duration that was sent at that time. Others may have seen it, and started to
// count, right after that. The duration they go by is the one in the Lease, in whole seconds.
func (c Config) limitsAfter(sent time.Time, lease time.Duration) writeLimits {
	margin := c.margin(lease)
	lease = lease.Truncate(time.Second)
	most := min(maxWriteDuration, lease-margin-c.RetryPeriod)
	short := min(maxWriteDuration, c.LeaseDuration.Truncate(time.Second)-c.margin(c.LeaseDuration)-c.RetryPeriod)
	return writeLimits{until: sent.Add(lease - margin), maxDuration: most, slowAfter: short / 2, margin: margin}
}

// patient is the duration of a lease that covers writeLimit, in whole seconds, 45 with the default flags. It is LeaseDuration if that does.
// Three retry periods are left for renewals that fail.
func (c Config) extendedLease() time.Duration {
	need := maxWriteDuration + 3*c.RetryPeriod
	seconds := math.Ceil(max(need.Seconds()/0.9, (need + c.margin(c.LeaseDuration)).Seconds())) // the margin is a tenth of the lease
	return max(c.LeaseDuration, time.Duration(seconds)*time.Second)
}

// renewal returns the duration to write at the next renewal, and how much of it the deadlines of writes may rely on once that renewal is confirmed.
// While writes are slow both are long. settled is when no write sent so far can be carried out any more. The way back to short has two steps: new writes
// get the short deadline at once, and the Lease keeps the long duration until no earlier write needs it.
func renewalDurations(slow bool, settled, now time.Time, short, long time.Duration) (write, rely time.Duration) {
	switch {
	case slow:
		return long, long
	case settled.After(now.Add(short)):
		return long, short
	}
	return short, short
}

// duration says for how long to take or renew the lease, and on how much of that writes may rely.
func (e *Elector) leaseDurations() (write, rely time.Duration) {
	slow := e.fence.hasSlowWrites()
	if !slow {
		e.shortenDeadline() // first: a write that begins after settled was asked must not have more time than that tells of
	}
	return renewalDurations(slow, e.fence.unknownUntil(), e.clock.Now(), e.cfg.LeaseDuration, e.cfg.extendedLease())
}

// shorten gives the writes to come what the short lease leaves them.
func (e *Elector) shortenDeadline() {
	short := e.cfg.LeaseDuration
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.confirmedDuration > short {
		e.confirmedDuration = short
		e.fence.shortenDeadline(e.cfg.limitsAfter(e.renewedAt, short))
		signal(e.wake)
	}
}

// paced logs a change of how long the lease is renewed for.
func (s *termRunner) logLeaseDuration(logger klog.Logger) {
	s.e.lock.Lock()
	relied := s.e.confirmedDuration
	s.e.lock.Unlock()
	if relied == s.loggedDuration {
		return
	}
	most := s.e.cfg.limitsAfter(time.Time{}, relied).maxDuration
	if relied > s.loggedDuration {
		logger.Info("Writes are slow, the lease is renewed for longer so that they can take longer", "leaseDuration", relied, "writeTimeout", most)
	} else {
		logger.Info("Writes are not slow any more, the lease is renewed for less time again", "leaseDuration", relied, "writeTimeout", most)
	}
	s.loggedDuration = relied
}
