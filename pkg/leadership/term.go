package leadership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// endReason says why a term ended.
type endReason string

const (
	endLost     endReason = "lost"      // not renewed in time, or in other hands
	endShutdown endReason = "shutdown"  // the process stops
	endStepDown endReason = "step-down" // StepDown was called
	endFailed   endReason = "failed"    // Lead returned
)

// joinTimeout is how long Lead may take to return after its requests were cut, at shutdown, if no more of the shutdown timeout is left.
const joinTimeout = 2 * time.Second

const notRenewed = "the lease was not renewed in time"

// flushTimeout bounds Deps.Flush.
const flushTimeout = time.Second

// service is a term while it is served.
type termRunner struct {
	e        *Elector
	term     Term
	holder   *leaseHolder // nil with election off
	cancel   context.CancelFunc
	leadDone chan error

	phase         phase
	timer         clock.Timer     // of the phase; nil: it has none
	idle          <-chan struct{} // settling: closed when nothing is in flight; nil: it was, or another phase
	phaseDeadline time.Time       // of draining and settling; zero: none
	endedAt       time.Time

	end       endReason // "" while it goes on
	stopping  bool      // the process stops
	leaseLost bool      // the lease was lost, be it after the end had begun
	stuck     bool      // Lead did not return in time
	err       error

	deadlineTimer  clock.Timer   // of the last moment at which the term may write, as known when it was set; nil with election off
	loggedDuration time.Duration // Elector.relied as last logged
}

// serve opens the fence, calls lead, and ends the term in order. over means Run must return err.
func (e *Elector) runTerm(ctx context.Context, held *leaseHolder, lead Lead) (over bool, err error) {
	s := e.beginTerm(ctx, held)
	termCtx, cancel := context.WithCancel(withTerm(context.WithoutCancel(ctx), s.term.Number))
	defer cancel()
	s.cancel = cancel
	go func() { s.leadDone <- lead(termCtx, s.term) }()
	s.runPhases(ctx)
	s.finishTerm(ctx)
	return s.stopping || s.err != nil, s.err
}

// begin starts the books of a term and opens the fence for it.
func (e *Elector) beginTerm(ctx context.Context, held *leaseHolder) *termRunner {
	cause, free := CauseInitial, e.clock.Now()
	if held != nil {
		cause, free = held.cause, held.freeSince
	}
	now := e.clock.Now()
	e.lock.Lock()
	e.term = Term{Number: e.term.Number + 1, Cause: cause}
	e.leading, e.endedAt = true, time.Time{}
	term, relied, allowed := e.term, e.confirmedDuration, writeLimits{}
	if held != nil {
		allowed = e.cfg.limitsAfter(e.renewedAt, relied)
	}
	e.fence.openTerm(term.Number, allowed) // under the lock: a renewal must not shorten relied in between
	e.lock.Unlock()
	if held != nil && isClosed(held.lost) { // before there was a term to end
		e.fence.abortTerm(held.lostReason)
	}
	e.deps.Metrics.takeovers.WithLabelValues(string(cause)).Observe(now.Sub(free).Seconds())
	klog.FromContext(ctx).Info("Term begins", "term", term.Number, "cause", cause, "leaseFreeFor", now.Sub(free).Round(time.Millisecond))
	s := &termRunner{e: e, term: term, holder: held, leadDone: make(chan error, 1), loggedDuration: e.cfg.LeaseDuration}
	if held != nil {
		s.deadlineTimer = e.clock.NewTimer(allowed.until.Sub(now))
		signal(e.wake)
	}
	return s
}

// await takes the term through its phases.
func (s *termRunner) runPhases(ctx context.Context) {
	stop := ctx.Done()
	gone, done := s.holder.endChannels()
	for !s.phase.isOver() {
		select {
		case err := <-s.leadDone:
			s.onLeadReturned(ctx, err)
		case <-gone:
			gone = nil
			s.handle(ctx, lost, s.holder.lostReason)
		case <-done:
			done = nil
			s.handle(ctx, lost, notRenewed)
		case <-stop:
			stop = nil
			s.handle(ctx, stopped, "shutdown")
		case <-timerChannel(s.deadlineTimer):
			s.checkDeadline(ctx)
		case <-s.e.wake:
			if down := s.e.currentStandDown(); down.active() {
				s.handle(ctx, steppedDown, down.reason)
			}
			s.logLeaseDuration(klog.FromContext(ctx))
			s.checkDeadline(ctx)
		case <-s.idle:
			s.idle = nil
			s.e.fence.closeTerm("its term is over")
			s.checkWrites(ctx)
		case <-timerChannel(s.timer):
			if s.phase == waitingForWrites && s.idle == nil {
				s.checkWrites(ctx)
			} else {
				s.handle(ctx, timedOut, "the drain took too long")
			}
		}
	}
}

// on takes the term to the phase after an event. Writes that are to be cut are cut before the controllers are told.
func (s *termRunner) handle(ctx context.Context, ev event, reason string) {
	was := s.phase
	s.phase = was.next(ev)
	s.stopping = s.stopping || ev == stopped
	s.leaseLost = s.leaseLost || ev == lost && was != joining // after the cut we have ended the renewals ourselves
	if s.phase == was && (ev != stopped || was != joining) {  // a process that is told to stop while it joins gets a timer for that
		return
	}
	if s.phase == joining && was != joining || s.phase == broken && was == waitingForWrites {
		s.abortRequests(ctx, reason)
	}
	if was == serving {
		s.stopControllers(ctx, ev, reason)
	}
	if ev == timedOut {
		s.onTimeout(was)
	}
	s.startPhase()
}

// finish tells the controllers that the term is over.
func (s *termRunner) stopControllers(ctx context.Context, ev event, reason string) {
	s.end = map[event]endReason{lost: endLost, stopped: endShutdown, steppedDown: endStepDown, leadReturned: endFailed}[ev]
	s.endedAt = s.e.clock.Now()
	if s.e.cfg.ShutdownTimeout > 0 {
		s.phaseDeadline = s.endedAt.Add(s.e.cfg.ShutdownTimeout)
	}
	s.e.lock.Lock()
	s.e.endedAt = s.endedAt
	s.e.lock.Unlock()
	s.e.fence.startDrain()
	s.cancel() // before the log, which may block
	klog.FromContext(ctx).Info("Term ends", "term", s.term.Number, "why", s.end, "reason", reason)
}

// late takes in that a phase took too long. It is an error if controllers still worked or waited for an answer, and the process stops.
func (s *termRunner) onTimeout(was phase) {
	s.stuck = was == joining
	if s.stuck || s.stopping && (was == draining || s.e.fence.inFlight() > 0) {
		s.err = errors.Join(s.err, ErrShutdownTimeout)
	}
}

// enter starts what a phase begins with.
func (s *termRunner) startPhase() {
	s.idle = nil
	s.stopTimer()
	switch {
	case s.phase == joining && s.stopping:
		now := s.e.clock.Now()
		s.timer = s.e.clock.NewTimer(timing.Later(s.phaseDeadline, now.Add(joinTimeout)).Sub(now))
	case s.phase == draining || s.phase == waitingForWrites:
		if !s.phaseDeadline.IsZero() {
			s.timer = s.e.clock.NewTimer(s.phaseDeadline.Sub(s.e.clock.Now()))
		}
	}
	if s.phase == waitingForWrites {
		s.idle = s.e.fence.idleChannel()
	}
}

// settle goes on with settling when nothing is in flight any more.
func (s *termRunner) checkWrites(ctx context.Context) {
	s.stopTimer()
	now := s.e.clock.Now()
	settled := now
	if s.holder != nil {
		settled = s.e.fence.unknownUntil()
	}
	ev, over, wait := decideWait(settled, s.phaseDeadline, now)
	if over {
		s.handle(ctx, ev, "a write was not answered and may still be done")
		return
	}
	klog.FromContext(ctx).Info("Waiting until a write that was not answered cannot be done any more", "term", s.term.Number, "for", wait.Round(time.Millisecond))
	s.timer = s.e.clock.NewTimer(wait)
}

// cut ends the fence hard. The lease is not renewed any more: nobody here can use it, however long controllers take to return.
func (s *termRunner) abortRequests(ctx context.Context, reason string) {
	if s.holder != nil {
		s.holder.stop()
	}
	n := s.e.fence.abortTerm(reason)
	klog.FromContext(ctx).V(2).Info("Fence ended", "term", s.term.Number, "reason", reason, "cut", n)
}

// returned takes in the return of lead.
func (s *termRunner) onLeadReturned(ctx context.Context, err error) {
	if err == nil && s.phase == serving {
		err = ErrLeadReturned
	}
	reason := ""
	if err != nil {
		s.err, reason = fmt.Errorf("term %d: %w", s.term.Number, err), err.Error()
	}
	s.handle(ctx, leadReturned, reason)
}

// checkLapse ends a term that may not write any more. The renew deadline counts from the answer to a renewal, the fence from when
// it was sent, so it may be the fence that knows first. What was given up then may lie in a send buffer: connections are not kept.
func (s *termRunner) checkDeadline(ctx context.Context) {
	until, limited := s.e.fence.termDeadline()
	if !limited {
		return
	}
	if left := until.Sub(s.e.clock.Now()); left > 0 {
		s.deadlineTimer.Reset(left)
		return
	}
	s.handle(ctx, lost, notRenewed)
}

// fires is the channel of a timer that may not be there.
func timerChannel(t clock.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C()
}

func (s *termRunner) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// conclude closes the books of a term that is over: the fence first, the release last and only if nothing of ours can be running any more.
func (s *termRunner) finishTerm(ctx context.Context) {
	e, ctx := s.e, context.WithoutCancel(ctx)
	s.stopTimer()
	e.fence.closeTerm("its term is over")
	klog.FromContext(ctx).Info("Controllers stopped", "term", s.term.Number, "after", e.clock.Since(s.endedAt).Round(time.Millisecond),
		"drained", s.phase == clean, "stuck", s.stuck, "inFlight", e.fence.inFlight())
	if s.holder != nil {
		s.deadlineTimer.Stop()
		s.holder.stop()
		<-s.holder.done
		e.lease.stopHolding()
		s.handOver(ctx)
		e.recordEvent("stopped leading")
	}
	s.recordEnd()
	s.flushEvents(ctx) // after the release: nobody should wait for a leader because of what the last one still has to tell
}

// handOver gives the lease away as soon as that is safe: now, or by what it is left to expire.
func (s *termRunner) handOver(ctx context.Context) {
	e := s.e
	switch {
	case s.leaseLost:
	case s.phase == clean:
		e.releaseLease(ctx, func() time.Duration { return 0 })
	case s.stuck:
		klog.FromContext(ctx).Info("Left the lease to expire, controllers have not returned", "lease", e.lease)
	default:
		settled := e.fence.unknownUntil()
		e.releaseLease(ctx, func() time.Duration { return max(settled.Sub(e.clock.Now()), time.Second) })
	}
}

// flush gives the events of controllers a moment to leave.
func (s *termRunner) flushEvents(ctx context.Context) {
	if s.e.deps.Flush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	s.e.deps.Flush(ctx)
}

// retire ends the books of a term.
func (s *termRunner) recordEnd() {
	e := s.e
	e.deps.Metrics.ended.WithLabelValues(string(s.end)).Inc()
	e.deps.Metrics.lease.Set(0)
	free := timing.Later(e.clock.Now(), e.fence.unknownUntil()) // other processes cannot take the lease before
	e.lock.Lock()
	defer e.lock.Unlock()
	e.standDown.extend(free.Add(e.cfg.coolDown()))
	e.leading, e.leaseHolder = s.stuck, nil
}
