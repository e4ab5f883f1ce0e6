package leadership

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"minikcm/internal/timing"
)

// ignoredCoolDowns is the number of cool-downs during which a process ignores calls of StepDown after a
// stand-down in which no other process took the lease.
const ignoredCoolDowns = 10

// standDown is a period in which this process does not compete for the lease. The zero value is none.
type standDown struct {
	reason   string
	until    time.Time
	caughtUp func() bool // may be nil
}

func (s standDown) active() bool { return !s.until.IsZero() }

// StepDown makes a leader end its term and release the lease. The process, leader or standby, then
// does not compete for the lease until caughtUp returns true or other processes could take the lease
// for two lease durations, the cool-down. StepDown returns at once. If no other process takes the lease within
// the cool-down, further calls are ignored for ten cool-downs, or until another holder is seen. Calls
// during a stand-down and without election have no effect.
func (e *Elector) StepDown(reason string, caughtUp func() bool) {
	e.lock.Lock()
	defer e.lock.Unlock()
	now := e.clock.Now()
	if e.lease != nil && !e.standDown.active() && !now.Before(e.stepDownIgnoredUntil) {
		e.standDown = standDown{reason: reason, until: now.Add(e.cfg.coolDown()), caughtUp: caughtUp}
		timing.Signal(e.wake)
	}
}

func (e *Elector) currentStandDown() standDown {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.standDown
}

// standDownPause returns how long a standby waits before it checks its stand-down again. It returns 0
// once the process may compete.
func (e *Elector) standDownPause(ctx context.Context) time.Duration {
	s := e.currentStandDown()
	if !s.active() {
		return 0
	}
	caughtUp, now := s.caughtUp != nil && s.caughtUp(), e.clock.Now()
	if left := s.until.Sub(now); left > 0 && !caughtUp {
		return min(left, e.cfg.RetryPeriod)
	}
	holder := e.lease.latestObservation().record.HolderIdentity
	noOtherCandidate := !caughtUp && (holder == "" || holder == e.cfg.Identity)
	e.lock.Lock()
	e.standDown = standDown{}
	if noOtherCandidate {
		e.stepDownIgnoredUntil = now.Add(ignoredCoolDowns * e.cfg.coolDown())
	}
	e.lock.Unlock()
	klog.FromContext(ctx).Info("Competing for the lease again",
		"caughtUp", caughtUp, "noOtherCandidate", noOtherCandidate, "steppedDown", s.reason)
	return 0
}
