package leadership

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"minikcm/internal/timing"
)

// aloneCoolDowns is the number of cool-downs during which a process ignores calls of StepDown after a
// stand-down in which no other process took the lease.
const aloneCoolDowns = 10

// standDown is a period in which this process does not compete for the lease. The zero value is none.
type standDown struct {
	reason     string
	until      time.Time
	caughtUp   func() bool // may be nil
	aloneUntil time.Time   // no other process took the lease during the last stand-down
}

func (s *standDown) active() bool { return !s.until.IsZero() }

func (s *standDown) noOtherCandidate(now time.Time) bool { return now.Before(s.aloneUntil) }

// begin starts a stand-down. It returns false during a stand-down and while there is no other
// candidate.
func (s *standDown) begin(reason string, caughtUp func() bool, now time.Time, coolDown time.Duration) bool {
	if s.active() || s.noOtherCandidate(now) {
		return false
	}
	*s = standDown{reason: reason, until: now.Add(coolDown), caughtUp: caughtUp}
	return true
}

// remaining returns 0 if there is no stand-down, or the stand-down has passed, or the caches have
// caught up.
func (s *standDown) remaining(caughtUp bool, now time.Time) time.Duration {
	if caughtUp {
		return 0
	}
	return max(0, s.until.Sub(now))
}

// end ends a stand-down. alone is true if no other process has taken the lease meanwhile.
func (s *standDown) end(alone bool, now time.Time, coolDown time.Duration) {
	*s = standDown{}
	if alone {
		s.aloneUntil = now.Add(aloneCoolDowns * coolDown)
	}
}

// extend prolongs a stand-down, if there is one.
func (s *standDown) extend(until time.Time) {
	if s.active() {
		s.until = timing.Later(s.until, until)
	}
}

// StepDown makes a leader end its term and release the lease. The process, leader or standby, then
// does not compete for the lease until caughtUp returns true or the cool-down has passed since other
// processes could take the lease. StepDown returns at once. If no other process takes the lease within
// the cool-down, further calls are ignored for ten cool-downs, or until another holder is seen. Calls
// during a stand-down and without election have no effect.
func (e *Elector) StepDown(reason string, caughtUp func() bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.lease != nil && e.standDown.begin(reason, caughtUp, e.clock.Now(), e.cfg.coolDown()) {
		signal(e.wake)
	}
}

// currentStandDown returns a copy of the stand-down.
func (e *Elector) currentStandDown() standDown {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.standDown
}

func (e *Elector) noOtherCandidate() bool {
	s := e.currentStandDown()
	return s.noOtherCandidate(e.clock.Now())
}

// standDownPause returns how long a standby waits before it checks its stand-down again. It returns 0
// once the process may compete.
func (e *Elector) standDownPause(ctx context.Context) time.Duration {
	s := e.currentStandDown()
	if !s.active() {
		return 0
	}
	caughtUp, now := s.caughtUp != nil && s.caughtUp(), e.clock.Now()
	if left := s.remaining(caughtUp, now); left > 0 {
		return min(left, e.cfg.RetryPeriod)
	}
	holder := e.lease.latestObservation().record.HolderIdentity
	alone := !caughtUp && (holder == "" || holder == e.cfg.Identity)
	e.lock.Lock()
	e.standDown.end(alone, now, e.cfg.coolDown())
	e.lock.Unlock()
	klog.FromContext(ctx).Info("Competing for the lease again", "caughtUp", caughtUp, "noOtherCandidate", alone, "steppedDown", s.reason)
	return 0
}
