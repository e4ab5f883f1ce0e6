package leadership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// endReasons maps each event that ends a term to a metric label.
var endReasons = map[event]string{lost: "lost", stopped: "shutdown", steppedDown: "step-down", leadReturned: "failed"}

// joinTimeout is the time for Lead to return after the cancellation of requests at shutdown, if the
// shutdown timeout ends before.
const joinTimeout = 2 * time.Second

const (
	notRenewed = "the lease was not renewed in time"
	termOver   = "its term is over"
)

// keepRenewing renews the lease until ctx ends, another process holds the lease, or the renew deadline
// has passed.
func (e *Elector) keepRenewing(ctx context.Context) {
	master := e.deps.Metrics.master.WithLabelValues(e.cfg.Name)
	master.Set(1)
	defer master.Set(0)
	for timing.Sleep(ctx, e.clock, e.cfg.RetryPeriod) {
		if e.renewOrTimeOut(ctx) || ctx.Err() != nil {
			continue
		}
		e.lock.Lock()
		e.lostReason = cmp.Or(e.lostReason, notRenewed) // runPhases cancels the requests
		e.lock.Unlock()
		timing.Signal(e.wake)
		return
	}
}

// renewOrTimeOut repeats attempts to renew the lease until one succeeds. It returns false after the
// renew deadline, the deadline of writes or a loss. The deadline of writes may come first: it counts from
// the request of the last renewal, the renew deadline from the first attempt of this renewal.
func (e *Elector) renewOrTimeOut(ctx context.Context) bool {
	e.lock.Lock()
	left := e.cfg.limitsAfter(e.renewedAt, e.confirmedDuration).until.Sub(e.clock.Now())
	e.lock.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(left, e.cfg.RenewDeadline))
	defer cancel()
	for ctx.Err() == nil && e.currentLostReason() == "" {
		next := e.clock.Now().Add(e.cfg.RetryPeriod)
		result := e.attemptLease(ctx, true)
		if result.sentGet && e.currentLostReason() == "" {
			e.deps.Metrics.slowpath.WithLabelValues(e.cfg.Name).Inc()
		}
		if result.held {
			return true
		}
		timing.Sleep(ctx, e.clock, next.Sub(e.clock.Now()))
	}
	return false
}

// termRunner runs one term.
type termRunner struct {
	e        *Elector
	term     uint64
	cancel   context.CancelFunc
	leadDone chan error

	stopRenewing context.CancelFunc
	renewing     sync.WaitGroup

	phase         phase
	timer         clock.Timer     // of the phase; nil for none
	idle          <-chan struct{} // of the fence; in waitingForWrites, until no request is in flight
	phaseDeadline time.Time       // of draining and waitingForWrites; zero for none
	endedAt       time.Time

	endReason string // one of endReasons; "" before the end
	stopping  bool   // the process is shutting down
	leaseLost bool   // the lease was lost, maybe after the end
	stuck     bool   // Lead did not return in time
	err       error
}

// runTerm opens the fence, calls lead and ends the term in order. If stop is true, Run must return err.
func (e *Elector) runTerm(ctx context.Context, won attemptResult, lead Lead) (stop bool, err error) {
	t := e.beginTerm(ctx, won)
	termCtx, cancel := context.WithCancel(withTerm(context.WithoutCancel(ctx), t.term))
	defer cancel()
	t.cancel = cancel
	go func() { t.leadDone <- lead(termCtx, t.term) }()
	t.runPhases(ctx)
	t.finishTerm(ctx)
	return t.stopping || t.err != nil, t.err
}

func (e *Elector) beginTerm(ctx context.Context, won attemptResult) *termRunner {
	now := e.clock.Now()
	e.lock.Lock()
	e.term++
	e.leading = true
	term, limits := e.term, writeLimits{}
	if e.lease != nil {
		limits = e.cfg.limitsAfter(e.renewedAt, e.confirmedDuration)
	}
	e.fence.openTerm(term, limits) // under the lock: a renewal must not shorten confirmedDuration in between
	if e.lostReason != "" {        // before the fence was open
		e.fence.abortTerm(e.lostReason)
	}
	e.lock.Unlock()
	t := &termRunner{e: e, term: term, leadDone: make(chan error, 1), stopRenewing: func() {}}
	if e.lease != nil {
		var renewing context.Context
		renewing, t.stopRenewing = context.WithCancel(context.WithoutCancel(ctx)) // a leader renews while it drains
		t.renewing.Go(func() { e.keepRenewing(renewing) })
		timing.Signal(e.wake)
	}
	freeFor := now.Sub(won.freeSince)
	e.deps.Metrics.takeovers.WithLabelValues(string(won.cause)).Observe(freeFor.Seconds())
	klog.FromContext(ctx).Info("Term begins", "term", term, "cause", won.cause, "leaseFreeFor", freeFor.Round(time.Millisecond))
	return t
}

// runPhases runs the term to its final phase.
func (t *termRunner) runPhases(ctx context.Context) {
	stop := ctx.Done()
	for !t.phase.isOver() {
		var expired <-chan time.Time
		if t.timer != nil {
			expired = t.timer.C()
		}
		select {
		case err := <-t.leadDone:
			t.onLeadReturned(ctx, err)
		case <-stop:
			stop = nil
			t.handleEvent(ctx, stopped, "shutdown")
		case <-t.e.wake:
			if reason := t.e.currentLostReason(); reason != "" {
				t.handleEvent(ctx, lost, reason)
			}
			if down := t.e.currentStandDown(); down.active() {
				t.handleEvent(ctx, steppedDown, down.reason)
			}
		case <-t.idle:
			if t.e.fence.inFlight() == 0 {
				t.idle = nil
				t.e.fence.closeTerm()
				t.checkWrites(ctx)
			}
		case <-expired:
			if t.phase == waitingForWrites && t.idle == nil {
				t.checkWrites(ctx)
			} else {
				t.handleEvent(ctx, timedOut, "the drain took too long")
			}
		}
	}
}

// handleEvent moves the term to the phase after an event. Requests are cancelled before the controllers
// stop.
func (t *termRunner) handleEvent(ctx context.Context, ev event, reason string) {
	before := t.phase
	t.phase = before.next(ev)
	t.stopping = t.stopping || ev == stopped
	t.leaseLost = t.leaseLost || ev == lost && before != aborting // aborting has stopped the renewals
	if t.phase == before && (ev != stopped || before != aborting) {
		return // a shutdown in the aborting phase starts a timer
	}
	cancelled := 0
	if t.phase == aborting && before != aborting || t.phase == undrained && before == waitingForWrites {
		// This process cannot use the lease any more.
		t.stopRenewing()
		cancelled = t.e.fence.abortTerm(reason)
		klog.FromContext(ctx).V(2).Info("Cancelled the requests of the term", "term", t.term, "reason", reason, "requests", cancelled)
	}
	if before == leading {
		t.stopControllers(ctx, ev, reason)
	}
	if ev == timedOut {
		t.stuck = before == aborting
		// Controllers still run or wait for responses. The error stops the process.
		if t.stuck || t.stopping && (before == draining || cancelled > 0) {
			t.err = errors.Join(t.err, ErrShutdownTimeout)
		}
	}
	t.startPhase()
}

func (t *termRunner) stopControllers(ctx context.Context, ev event, reason string) {
	t.endReason = endReasons[ev]
	t.endedAt = t.e.clock.Now()
	if t.e.cfg.ShutdownTimeout > 0 {
		t.phaseDeadline = t.endedAt.Add(t.e.cfg.ShutdownTimeout)
	}
	t.e.fence.startDrain()
	t.cancel() // before the log, which may block
	klog.FromContext(ctx).Info("Term ends", "term", t.term, "end", t.endReason, "reason", reason)
}

func (t *termRunner) startPhase() {
	t.idle = nil
	t.stopTimer()
	now := t.e.clock.Now()
	switch {
	case t.phase == aborting && t.stopping:
		t.timer = t.e.clock.NewTimer(timing.Later(t.phaseDeadline, now.Add(joinTimeout)).Sub(now))
	case (t.phase == draining || t.phase == waitingForWrites) && !t.phaseDeadline.IsZero():
		t.timer = t.e.clock.NewTimer(t.phaseDeadline.Sub(now))
	}
	if t.phase == waitingForWrites {
		t.idle = t.e.fence.idle
		timing.Signal(t.e.fence.idle)
	}
}

// checkWrites continues waitingForWrites once no request is in flight.
func (t *termRunner) checkWrites(ctx context.Context) {
	t.stopTimer()
	ev, wait := decideWait(t.e.fence.unknownUntil(), t.phaseDeadline, t.e.clock.Now())
	if wait == 0 {
		t.handleEvent(ctx, ev, "a write has an unknown outcome")
		return
	}
	klog.FromContext(ctx).Info("Waiting for writes with unknown outcome", "term", t.term, "duration", wait.Round(time.Millisecond))
	t.timer = t.e.clock.NewTimer(wait)
}

func (t *termRunner) onLeadReturned(ctx context.Context, err error) {
	if err == nil && t.phase == leading {
		err = ErrLeadReturned
	}
	reason := ""
	if err != nil {
		t.err, reason = fmt.Errorf("term %d: %w", t.term, err), err.Error()
	}
	t.handleEvent(ctx, leadReturned, reason)
}

func (t *termRunner) stopTimer() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// finishTerm closes the fence and then releases the lease, if no write of the term can complete any
// more.
func (t *termRunner) finishTerm(ctx context.Context) {
	e, ctx := t.e, context.WithoutCancel(ctx)
	t.stopTimer()
	e.fence.closeTerm()
	klog.FromContext(ctx).Info("Controllers stopped", "term", t.term, "duration", e.clock.Since(t.endedAt).Round(time.Millisecond),
		"drained", t.phase == drained, "stuck", t.stuck, "inFlight", e.fence.inFlight())
	t.stopRenewing()
	t.renewing.Wait()
	if e.lease != nil {
		e.lease.stopHolding()
		t.handOver(ctx)
		e.recordEvent("stopped leading")
	}
	t.recordEnd()
}

// handOver releases the lease, or lets the lease expire when all writes of the term have completed.
func (t *termRunner) handOver(ctx context.Context) {
	e := t.e
	switch {
	case t.leaseLost:
	case t.phase == drained:
		e.releaseLease(ctx, time.Time{})
	case t.stuck:
		klog.FromContext(ctx).Info("Not releasing the lease, controllers have not returned", "lease", e.lease)
	default:
		e.releaseLease(ctx, timing.Later(e.clock.Now(), e.fence.unknownUntil()))
	}
}

func (t *termRunner) recordEnd() {
	e := t.e
	e.deps.Metrics.ended.WithLabelValues(t.endReason).Inc()
	e.deps.Metrics.lease.Set(0)
	free := timing.Later(e.clock.Now(), e.fence.unknownUntil()) // other processes cannot take the lease before
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.standDown.active() {
		e.standDown.until = timing.Later(e.standDown.until, free.Add(e.cfg.coolDown()))
	}
	e.leading = t.stuck
}
