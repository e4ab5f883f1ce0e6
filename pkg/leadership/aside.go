package leadership

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// aloneFor is for how many cool-downs a process is not asked to step down again if nobody else took the lease the last time.
const aloneFor = 10

// aside says whether this process stays out of the election because somebody else could do better, and whether there is anybody.
type aside struct {
	clock    clock.PassiveClock
	coolDown time.Duration
	begun    chan struct{} // of size one: a running term should end because of it

	lock       sync.Mutex
	current    *timeOut  // nil: none
	aloneUntil time.Time // until then stepping down helps nobody: it did not the last time
}

// timeOut is one time out of the election.
type timeOut struct {
	reason   string
	until    time.Time
	caughtUp func() bool // may be nil
}

func newAside(clk clock.PassiveClock, coolDown time.Duration) *aside {
	return &aside{clock: clk, coolDown: coolDown, begun: make(chan struct{}, 1)}
}

// left says how much longer to stay out: 0 if the time has passed or what was missed has been caught up.
func (t *timeOut) left(caughtUp bool, now time.Time) time.Duration {
	if t == nil || caughtUp {
		return 0
	}
	return max(0, t.until.Sub(now))
}

// begin begins a time out, and reports whether it did: not in another one, and not while the process is alone.
func (a *aside) begin(reason string, caughtUp func() bool) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	now := a.clock.Now()
	if a.current != nil || now.Before(a.aloneUntil) {
		return false
	}
	a.current = &timeOut{reason: reason, until: now.Add(a.coolDown), caughtUp: caughtUp}
	signal(a.begun)
	return true
}

// running is the time out that has begun and was not ended; nil if there is none.
func (a *aside) running() *timeOut {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.current
}

// reason is why the process is out, "" if it is not.
func (a *aside) reason() string {
	if t := a.running(); t != nil {
		return t.reason
	}
	return ""
}

// end ends the time out. alone means that nobody else has taken the lease meanwhile.
func (a *aside) end(alone bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.current, a.aloneUntil = nil, time.Time{}
	if alone {
		a.aloneUntil = a.clock.Now().Add(aloneFor * a.coolDown)
	}
	select { // a standby has no term that could have taken it
	case <-a.begun:
	default:
	}
}

// notBefore has a time out that runs last for a cool-down from the moment at which others can take the lease.
func (a *aside) notBefore(free time.Time) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.current != nil {
		a.current.until = timing.Later(a.current.until, free.Add(a.coolDown))
	}
}

// others notes that somebody else holds the lease.
func (a *aside) others() {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.aloneUntil = time.Time{}
}

// alone reports whether no other process took the lease the last time that this one stood aside.
func (a *aside) alone() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.clock.Now().Before(a.aloneUntil)
}

// StepDown makes a leader end its term, release the lease and, like a standby, stay out of the election
// until caughtUp returns true or the cool-down has passed since others could take the lease. It returns at once. The caller decides that
// somebody else could do better. If the cool-down passes and nobody else has taken the lease there is nobody, and
// calls are ignored for ten cool-downs, or until another holder is seen. Without election it does nothing;
// a second call while out is ignored.
func (e *Elector) StepDown(reason string, caughtUp func() bool) {
	if e.lease != nil && e.aside.begin(reason, caughtUp) {
		signal(e.news)
	}
}

// outFor returns how long to wait before looking again whether we may compete; 0 means we may.
func (e *Elector) outFor(ctx context.Context) time.Duration {
	t := e.aside.running()
	if t == nil {
		return 0
	}
	caughtUp := t.caughtUp != nil && t.caughtUp()
	if left := t.left(caughtUp, e.clock.Now()); left > 0 {
		return min(left, e.cfg.RetryPeriod)
	}
	holder := e.lease.observed().record.HolderIdentity
	alone := !caughtUp && (holder == "" || holder == e.cfg.Identity)
	e.aside.end(alone)
	klog.FromContext(ctx).Info("Competing for the lease again", "caughtUp", caughtUp, "alone", alone, "steppedDown", t.reason)
	return 0
}
