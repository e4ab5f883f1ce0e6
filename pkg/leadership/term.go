package leadership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// endReason says why a term ended.
type endReason string

const (
	endLost     endReason = "lost"      // not renewed in time, or in other hands
	endShutdown endReason = "shutdown"  // the process stops
	endStepDown endReason = "step-down" // StepDown was called
	endFailed   endReason = "failed"    // Lead returned
)

// joinTimeout is how long Lead may take to return after its requests were cut, at shutdown.
const joinTimeout = 2 * time.Second

const notRenewed = "the lease was not renewed in time"

// flushTimeout bounds Deps.Flush.
const flushTimeout = time.Second

// service is a term while it is served.
type service struct {
	e      *Elector
	term   Term
	run    *candidacy // nil with election off
	cancel context.CancelFunc
	led    chan error

	end     endReason // "" while it goes on
	cut     bool      // the fence was ended hard
	stopped bool      // the process stops
	stuck   bool      // Lead did not return in time
	err     error
	timer   clock.Timer // of the drain, or of the join after a cut; nil: not started
	lapse   clock.Timer // of the last moment at which the term may write, as known when it was set; nil with election off
	began   time.Time   // of the end
}

// serve opens the fence, calls lead, and ends the term in order. over means Run must return err.
func (e *Elector) serve(ctx context.Context, run *candidacy, lead Lead) (over bool, err error) {
	s := e.begin(ctx, run)
	termCtx, cancel := context.WithCancel(withTerm(context.WithoutCancel(ctx), s.term.Number))
	defer cancel()
	s.cancel = cancel
	go func() { s.led <- lead(termCtx, s.term) }()
	s.await(ctx)
	e.conclude(ctx, s)
	return s.stopped || s.err != nil, s.err
}

// begin starts the books of a term and opens the fence for it.
func (e *Elector) begin(ctx context.Context, run *candidacy) *service {
	cause, free := CauseInitial, e.clock.Now()
	if e.turn != nil {
		cause, free = e.turn.takenFrom()
	}
	now := e.clock.Now()
	e.lock.Lock()
	e.term = Term{Number: e.term.Number + 1, Cause: cause}
	e.leading, e.ended = true, time.Time{}
	term, until := e.term, time.Time{}
	if e.turn != nil {
		until = writeUntil(e.renewed, e.cfg.LeaseDuration, e.cfg.Margin)
	}
	e.lock.Unlock()
	e.fence.open(term.Number, until)
	if run != nil && isClosed(run.lost) { // it was lost before there was a term to end
		e.fence.end(run.reason)
	}
	e.deps.Metrics.term.Set(float64(term.Number))
	e.deps.Metrics.takeovers.WithLabelValues(string(cause)).Observe(now.Sub(free).Seconds())
	klog.FromContext(ctx).Info("Term begins", "term", term.Number, "cause", cause, "leaseFreeFor", now.Sub(free).Round(time.Millisecond))
	s := &service{e: e, term: term, run: run, led: make(chan error, 1)}
	if run != nil {
		s.lapse = e.clock.NewTimer(until.Sub(now))
	}
	return s
}

// await blocks until lead has returned, or could not be made to. It ends the term when something demands it.
func (s *service) await(ctx context.Context) {
	stop, out := ctx.Done(), s.e.out
	lost, done := s.run.endings()
	for {
		select {
		case err := <-s.led:
			s.returned(ctx, err)
			return
		case <-lost:
			lost = nil
			s.lose(ctx, s.run.reason)
		case <-done:
			done = nil
			s.lose(ctx, notRenewed)
		case <-stop:
			stop = nil
			s.stopped = true
			s.drain(ctx, endShutdown, "shutdown")
		case <-out:
			s.drain(ctx, endStepDown, s.e.asideReason())
		case <-s.lapsed():
			s.checkLapse(ctx)
		case <-s.timeout():
			if s.expired(ctx) {
				return
			}
		}
	}
}

// lose ends the term hard: what is in flight is cut, then the controllers are told.
func (s *service) lose(ctx context.Context, reason string) {
	s.cutAll(ctx, reason)
	s.finish(ctx, endLost, reason)
}

// drain ends the term gently, within the shutdown timeout.
func (s *service) drain(ctx context.Context, why endReason, reason string) {
	s.finish(ctx, why, reason)
	if s.timer == nil {
		s.start(s.cut)
	}
}

// lapsed fires when the lease should have been renewed.
func (s *service) lapsed() <-chan time.Time {
	if s.lapse == nil {
		return nil
	}
	return s.lapse.C()
}

// checkLapse ends a term that may not write any more. client-go's elector counts from the answers to its renewals, the fence from when
// they were sent, so it may be the fence that knows first. What was given up then may lie in a send buffer: connections are not kept.
func (s *service) checkLapse(ctx context.Context) {
	until, limited := s.e.fence.deadline()
	if !limited {
		return
	}
	if left := until.Sub(s.e.clock.Now()); left > 0 {
		s.lapse.Reset(left)
		return
	}
	s.lose(ctx, notRenewed)
}

// start runs the timer of the phase that has begun: the join after a cut at shutdown, or the drain.
func (s *service) start(cut bool) {
	switch {
	case cut && s.stopped:
		s.timer = s.e.clock.NewTimer(joinTimeout)
	case !cut && s.e.cfg.ShutdownTimeout > 0:
		s.timer = s.e.clock.NewTimer(s.e.cfg.ShutdownTimeout)
	}
}

// timeout fires when the running phase has taken too long.
func (s *service) timeout() <-chan time.Time {
	if s.timer == nil {
		return nil
	}
	return s.timer.C()
}

// expired answers the end of a phase's time: a drain is cut, and true means that a join is given up.
func (s *service) expired(ctx context.Context) bool {
	s.timer = nil
	if s.cut {
		s.stuck, s.err = true, ErrShutdownTimeout
		return true
	}
	s.cutAll(ctx, "the drain took too long")
	if s.stopped {
		s.err = ErrShutdownTimeout
	}
	s.start(true)
	return false
}

// stopTimers frees the timers.
func (s *service) stopTimers() {
	for _, timer := range []clock.Timer{s.timer, s.lapse} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// cutAll ends the fence hard, once. The lease is not renewed any more: nobody here can use it, however long controllers take to return.
func (s *service) cutAll(ctx context.Context, reason string) {
	if s.cut {
		return
	}
	s.cut = true
	if s.run != nil {
		s.run.stop()
	}
	n := s.e.fence.end(reason)
	klog.FromContext(ctx).V(2).Info("Fence ended", "term", s.term.Number, "reason", reason, "cut", n)
}

// finish tells the controllers that the term is over. Only the first reason is kept.
func (s *service) finish(ctx context.Context, why endReason, reason string) {
	if s.end != "" {
		return
	}
	s.end, s.began = why, s.e.clock.Now()
	s.e.lock.Lock()
	s.e.ended = s.began
	s.e.lock.Unlock()
	klog.FromContext(ctx).Info("Term ends", "term", s.term.Number, "why", why, "reason", reason)
	s.cancel()
}

// returned takes in the return of lead.
func (s *service) returned(ctx context.Context, err error) {
	if err == nil && s.end != "" {
		return
	}
	if err == nil {
		err = ErrLeadReturned
	}
	s.err = fmt.Errorf("term %d: %w", s.term.Number, err)
	s.finish(ctx, endFailed, err.Error())
}

// conclude closes the books after the return of lead: the fence first, the release last and only if
// nothing of ours can be running any more.
func (e *Elector) conclude(ctx context.Context, s *service) {
	logger := klog.FromContext(ctx)
	ctx = context.WithoutCancel(ctx)
	defer s.stopTimers()
	clean := !s.cut && e.settle(ctx, s)
	e.fence.close("its term is over")
	inFlight := e.fence.InFlight()
	logger.Info("Controllers stopped", "term", s.term.Number, "after", e.clock.Since(s.began).Round(time.Millisecond),
		"drained", clean, "stuck", s.stuck, "inFlight", inFlight)
	if s.run != nil {
		s.run.stop()
		<-s.run.done
		e.turn.resign()
		e.turn.announce(stoppedLeading)
	}
	switch {
	case s.run == nil:
	case clean:
		e.deps.Metrics.atRelease.Set(float64(inFlight))
		e.release(ctx)
	case s.end != endLost && e.turn.observed().record.HolderIdentity == e.cfg.Identity:
		logger.Info("Left the lease to expire, the API server may still do what was cut", "lease", e.turn.Describe())
	}
	e.retire(s)
	e.flush(ctx) // after the release: nobody should wait for a leader because of what the last one still has to tell
}

// settle waits until no request is in flight, within what is left of the drain. Lead has returned, so
// normally there is none. If time is up the fence is ended hard, and the answer is false.
func (e *Elector) settle(ctx context.Context, s *service) bool {
	if s.timer == nil {
		s.start(false)
	}
	lost, done := s.run.endings()
	select {
	case <-e.fence.idleNow():
		return true
	case <-lost:
		s.cutAll(ctx, s.run.reason)
	case <-done:
		s.cutAll(ctx, notRenewed)
	case <-s.timeout():
		s.expired(ctx)
	}
	return false
}

// flush gives the events of controllers a moment to leave.
func (e *Elector) flush(ctx context.Context) {
	if e.deps.Flush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	e.deps.Flush(ctx)
}

// release gives the lease away. A failure is only logged: then it expires.
func (e *Elector) release(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RenewDeadline)
	defer cancel()
	begun := e.clock.Now()
	err := e.turn.release(ctx, func(ctx context.Context) { e.pause(ctx, releasePause) })
	switch {
	case errors.Is(err, errNotOurs):
		logger.Info("Nothing to release", "lease", e.turn.Describe(), "reason", err)
		return
	case err != nil:
		logger.Error(err, "Left the lease to expire", "lease", e.turn.Describe())
		return
	}
	logger.Info("Released the lease", "lease", e.turn.Describe(), "took", e.clock.Since(begun).Round(time.Millisecond))
}

// releasePause lies between tries of a release.
const releasePause = 250 * time.Millisecond

// retire ends the books of a term.
func (e *Elector) retire(s *service) {
	e.deps.Metrics.ended.WithLabelValues(string(s.end)).Inc()
	if e.turn != nil {
		// client-go leaves its metric at 1 when it is told to stop; a new elector sets it to 0
		_, _ = e.newElector(func(context.Context) {})
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	e.leading, e.run = s.stuck, nil
}
