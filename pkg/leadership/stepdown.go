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

// StepDown makes a leader end its term, release the lease and, like a standby, stay out of the election
// until caughtUp returns true or the cool-down has passed. It returns at once. The caller decides that
// somebody else could do better. Without election it does nothing; a second call while out is ignored.
func (e *Elector) StepDown(reason string, caughtUp func() bool) {
	if e.turn == nil {
		return
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.aside != nil {
		return
	}
	e.aside = &standAside{reason: reason, until: e.clock.Now().Add(e.cfg.CoolDown), caughtUp: caughtUp}
	signal(e.out)
	signal(e.wake)
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
	e.lock.Lock()
	e.aside = nil
	select { // a standby has no term that could have taken it
	case <-e.out:
	default:
	}
	e.lock.Unlock()
	klog.FromContext(ctx).Info("Competing for the lease again", "caughtUp", caughtUp, "steppedDown", aside.reason)
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
