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
type holding struct {
	e     *Elector
	cause Cause         // how the lease was free
	free  time.Time     // since when
	lost  chan struct{} // closed when the Lease was seen in other hands
	done  chan struct{} // closed when it is renewed no longer
	stop  context.CancelFunc

	once   sync.Once
	reason string // why lost; written once, before lost is closed
}

// lose ends a holding. Only the first reason counts.
func (h *holding) lose(reason string) {
	h.once.Do(func() {
		h.reason = reason
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
func (h *holding) endings() (lost, done <-chan struct{}) {
	if h == nil {
		return nil, nil
	}
	return h.lost, h.done
}

// take makes one attempt at the lease. A nil holding means it was not taken; doubtful that it may be ours all the same. An attempt that is
// under way when ctx ends has a second to be answered, and what it took, or may have, is given back.
func (e *Elector) take(ctx context.Context) (h *holding, version string, doubtful bool) {
	h = &holding{e: e, lost: make(chan struct{}), done: make(chan struct{})}
	e.lock.Lock()
	e.holding = h // before the attempt: the watch may be faster than its answer
	e.lock.Unlock()
	late, cancel := outliving(ctx, e.clock, time.Second)
	o := e.attempt(late, false)
	cancel()
	if o.held && ctx.Err() == nil {
		h.cause, h.free = o.cause, o.free
		e.recordEvent("became leader")
		ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx)) // a leader renews while it drains
		go h.keep(ctx)
		return h, o.version, false
	}
	e.lease.resign()
	if ctx.Err() != nil && (o.held || o.unsure) {
		e.leave(context.WithoutCancel(ctx), func() time.Duration { return 0 })
	}
	return nil, o.version, o.unsure
}

// keep renews the lease until ctx ends, it is in other hands, or it was not renewed for the renew deadline.
func (h *holding) keep(ctx context.Context) {
	defer close(h.done)
	master := h.e.deps.Metrics.master.WithLabelValues(h.e.cfg.Name)
	master.Set(1)
	defer master.Set(0)
	for ok := true; ok; ok = h.renew(ctx) {
		timing.Sleep(ctx, h.e.clock, h.e.cfg.RetryPeriod)
	}
}

// renew tries to renew the lease until that succeeds, and says whether it did.
func (h *holding) renew(ctx context.Context) bool {
	e := h.e
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RenewDeadline)
	defer cancel()
	for ctx.Err() == nil && !isClosed(h.lost) {
		again := e.clock.Now().Add(e.cfg.RetryPeriod)
		o := e.attempt(ctx, true)
		if o.read && o.lost == "" {
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
func (e *Elector) attempt(ctx context.Context, renewing bool) attemptResult {
	o := e.lease.attempt(ctx, renewing, e.duration)
	logger := klog.FromContext(ctx)
	switch {
	case o.err == nil || errors.Is(ctx.Err(), context.Canceled): // the end of the time for it is worth a line
	case apierrors.IsConflict(o.err) || apierrors.IsAlreadyExists(o.err): // somebody else was faster
		logger.V(2).Info("The lease changed meanwhile", "lease", e.lease, "err", o.err)
	default:
		logger.Error(o.err, "The lease was neither taken nor renewed", "lease", e.lease)
	}
	if o.held {
		e.noteHeld(o)
	}
	if o.lost != "" {
		e.lock.Lock()
		e.lose(o.lost)
		e.lock.Unlock()
	}
	return o
}

// noteHeld takes note of a write that made or kept us the holder.
func (e *Elector) noteHeld(o attemptResult) {
	e.fence.extend(e.cfg.allowed(o.sent, o.rely))
	e.deps.Metrics.lease.Set(o.written.Truncate(time.Second).Seconds())
	e.lock.Lock()
	defer e.lock.Unlock()
	if o.rely > e.relied {
		signal(e.wake)
	}
	e.renewed, e.relied = o.sent, o.rely
}

// leave gives the lease away, or lets it expire after hold if that is positive. A failure is only logged: then it expires some time.
func (e *Elector) leave(ctx context.Context, hold func() time.Duration) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, min(releaseTimeout, e.cfg.RenewDeadline))
	defer cancel()
	begun := e.clock.Now()
	err := e.lease.leave(ctx, hold, func(ctx context.Context) { timing.Sleep(ctx, e.clock, releasePause) })
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
func outliving(ctx context.Context, clk clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
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
