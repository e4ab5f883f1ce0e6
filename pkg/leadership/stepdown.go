package leadership

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// standAside is a time out of the election.
type standAside struct {
	reason   string
	until    time.Time
	caughtUp func() bool
}

// left says how much longer to stay out: 0 if the time has passed or what was missed has been caught up.
func (a *standAside) left(caughtUp bool, now time.Time) time.Duration {
	if a == nil || caughtUp {
		return 0
	}
	return max(0, a.until.Sub(now))
}

// aloneFor is for how many cool-downs a process is not asked to step down again if nobody else took the lease the last time.
const aloneFor = 10

// StepDown makes a leader end its term, release the lease and, like a standby, stay out of the election
// until caughtUp returns true or the cool-down has passed since others could take the lease. It returns at once. The caller decides that
// somebody else could do better. If the cool-down passes and nobody else has taken the lease there is nobody, and
// calls are ignored for ten cool-downs, or until another holder is seen. Without election it does nothing;
// a second call while out is ignored.
func (e *Elector) StepDown(reason string, caughtUp func() bool) {
	if e.lease == nil {
		return
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.aside != nil || e.clock.Now().Before(e.aloneUntil) {
		return
	}
	e.aside = &standAside{reason: reason, until: e.clock.Now().Add(e.cfg.CoolDown), caughtUp: caughtUp}
	signal(e.ending)
	signal(e.news)
}

// outFor returns how long to wait before looking again whether we may compete; 0 means we may.
func (e *Elector) outFor(ctx context.Context) time.Duration {
	e.lock.Lock()
	aside := e.aside
	e.lock.Unlock()
	if aside == nil {
		return 0
	}
	caughtUp := aside.caughtUp != nil && aside.caughtUp() // not under the lock: it may ask us
	left := aside.left(caughtUp, e.clock.Now())
	if left > 0 {
		return min(left, e.cfg.RetryPeriod)
	}
	holder := e.lease.observed().record.HolderIdentity
	alone := !caughtUp && (holder == "" || holder == e.cfg.Identity)
	e.lock.Lock()
	e.aside, e.aloneUntil = nil, time.Time{}
	if alone {
		e.aloneUntil = e.clock.Now().Add(aloneFor * e.cfg.CoolDown)
	}
	select { // a standby has no term that could have taken it
	case <-e.ending:
	default:
	}
	e.lock.Unlock()
	klog.FromContext(ctx).Info("Competing for the lease again", "caughtUp", caughtUp, "alone", alone, "steppedDown", aside.reason)
	return 0
}

// asideReason is why we stand aside, "" if we do not.
func (e *Elector) asideReason() string {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.aside == nil {
		return ""
	}
	return e.aside.reason
}

// standing says whether we stand aside, and whether the last time showed that nobody else takes the lease.
func (e *Elector) standing() (aside, alone bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.aside != nil, e.clock.Now().Before(e.aloneUntil)
}

// LeaseLag is how many versions of the Lease were seen by requests since its watch last delivered one, which version that was, and when it was
// first missed. Without election it is zero.
func (e *Elector) LeaseLag() (ahead int, delivered string, since time.Time) {
	if e.lease == nil {
		return 0, "", time.Time{}
	}
	lag := e.lease.lag()
	return lag.ahead, lag.version, lag.since
}

// LeaseReopened starts that count anew, because the watch was reopened.
func (e *Elector) LeaseReopened() {
	if e.lease != nil {
		e.lease.reopened()
	}
}
