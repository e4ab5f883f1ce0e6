package leadership

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// renewJitter bounds the flags as client-go v0.37 does (tools/leaderelection, JitterFactor): the renew deadline has to be longer than so many
// retry periods.
const renewJitter = 1.2

// holding is one uninterrupted possession of the lease as its renewal loop sees it: from the attempt that acquired it to the last renewal. Controllers
// know the same period as a Term.
type leaseHolder struct {
	e         *Elector
	cause     Cause         // how the lease was free
	freeSince time.Time     // since when
	lost      chan struct{} // closed when the Lease was seen in other hands
	done      chan struct{} // closed when it is renewed no longer
	stop      context.CancelFunc

	once       sync.Once
	lostReason string // why lost; written once, before lost is closed
}

// lose ends a holding. Only the first reason counts.
func (h *leaseHolder) markLost(reason string) {
	h.once.Do(func() {
		h.lostReason = reason
		close(h.lost)
	})
}

// isClosed says whether c is closed. Nothing is ever sent on it.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// endings are the channels that tell of the end of a holding; nil ones, that never do, with election off.
func (h *leaseHolder) endChannels() (lost, done <-chan struct{}) {
	if h == nil {
		return nil, nil
	}
	return h.lost, h.done
}

// take makes one attempt at the lease. A nil holding means it was not taken; doubtful that it may be ours all the same. An attempt that is
// under way when ctx ends has a second to be answered, and what it took, or may have, is given back.
func (e *Elector) acquire(ctx context.Context) (h *leaseHolder, version string, doubtful bool) {
	h = &leaseHolder{e: e, lost: make(chan struct{}), done: make(chan struct{})}
	e.lock.Lock()
	e.leaseHolder = h // before the attempt: the watch may be faster than its answer
	e.lock.Unlock()
	late, cancel := outlivingContext(ctx, e.clock, time.Second)
	o := e.attemptLease(late, false)
	cancel()
	if o.held && ctx.Err() == nil {
		h.cause, h.freeSince = o.cause, o.freeSince
		e.recordEvent("became leader")
		ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx)) // a leader renews while it drains
		go h.keepRenewing(ctx)
		return h, o.version, false
	}
	e.lease.stopHolding()
	if ctx.Err() != nil && (o.held || o.unknown) {
		e.releaseLease(context.WithoutCancel(ctx), func() time.Duration { return 0 })
	}
	return nil, o.version, o.unknown
}

// keep renews the lease until ctx ends, it is in other hands, or it was not renewed for the renew deadline.
func (h *leaseHolder) keepRenewing(ctx context.Context) {
	defer close(h.done)
	master := h.e.deps.Metrics.master.WithLabelValues(h.e.cfg.Name)
	master.Set(1)
	defer master.Set(0)
	for ok := true; ok; ok = h.renewOrTimeOut(ctx) {
		timing.Sleep(ctx, h.e.clock, h.e.cfg.RetryPeriod)
	}
}

// renew tries to renew the lease until that succeeds, and says whether it did.
func (h *leaseHolder) renewOrTimeOut(ctx context.Context) bool {
	e := h.e
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RenewDeadline)
	defer cancel()
	for ctx.Err() == nil && !isClosed(h.lost) {
		again := e.clock.Now().Add(e.cfg.RetryPeriod)
		o := e.attemptLease(ctx, true)
		if o.read && o.lostReason == "" {
			e.deps.Metrics.slowpath.WithLabelValues(e.cfg.Name).Inc()
		}
		if o.held {
			return true
		}
		timing.Sleep(ctx, e.clock, again.Sub(e.clock.Now()))
	}
	return false
}

// attempt makes one try to take or renew the lease, and takes note of what came of it.
func (e *Elector) attemptLease(ctx context.Context, renewing bool) attemptResult {
	o := e.lease.acquireOrRenew(ctx, renewing, e.leaseDurations)
	logger := klog.FromContext(ctx)
	switch {
	case o.err == nil || errors.Is(ctx.Err(), context.Canceled): // the end of the time for it is worth a line
	case apierrors.IsConflict(o.err) || apierrors.IsAlreadyExists(o.err): // somebody else was faster
		logger.V(2).Info("The lease changed meanwhile", "lease", e.lease, "err", o.err)
	default:
		logger.Error(o.err, "The lease was neither taken nor renewed", "lease", e.lease)
	}
	if o.held {
		e.recordHeld(o)
	}
	if o.lostReason != "" {
		e.lock.Lock()
		e.loseLease(o.lostReason)
		e.lock.Unlock()
	}
	return o
}

// noteHeld takes note of a write that made or kept us the holder.
func (e *Elector) recordHeld(o attemptResult) {
	e.fence.extendDeadline(e.cfg.limitsAfter(o.sent, o.reliable))
	e.deps.Metrics.lease.Set(o.written.Truncate(time.Second).Seconds())
	e.lock.Lock()
	defer e.lock.Unlock()
	if o.reliable > e.confirmedDuration {
		signal(e.wake)
	}
	e.renewedAt, e.confirmedDuration = o.sent, o.reliable
}

// leave gives the lease away, or lets it expire after hold if that is positive. A failure is only logged: then it expires some time.
func (e *Elector) releaseLease(ctx context.Context, hold func() time.Duration) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, min(releaseTimeout, e.cfg.RenewDeadline))
	defer cancel()
	begun := e.clock.Now()
	err := e.lease.release(ctx, hold, func(ctx context.Context) { timing.Sleep(ctx, e.clock, releasePause) })
	switch {
	case errors.Is(err, errNotOurs):
		logger.Info("Nothing to release", "lease", e.lease, "reason", err)
	case err != nil:
		logger.Error(err, "Left the lease to expire", "lease", e.lease)
	case hold() > 0:
		logger.Info("Left the lease to expire, the API server may still do what was not answered", "lease", e.lease, "in", hold().Round(time.Millisecond))
	default:
		logger.Info("Released the lease", "lease", e.lease, "took", e.clock.Since(begun).Round(time.Millisecond))
	}
}

// outliving returns a context that ends d after ctx does, or when it is cancelled.
func outlivingContext(ctx context.Context, clk clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timing.Sleep(late, clk, d)
		cancel()
	})
	return late, func() {
		stop()
		cancel()
	}
}
