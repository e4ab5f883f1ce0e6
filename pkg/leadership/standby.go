package leadership

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
)

// standby waits until it has won the lease, or returns nil when ctx ends.
func (e *Elector) waitForLease(ctx context.Context) *leaseHolder {
	logger := klog.FromContext(ctx)
	logger.Info("Waiting for the lease", "lease", e.lease, "identity", e.cfg.Identity)
	var last lastAttempt
	poll, doubts, told := time.Duration(0), 0, false
	for ctx.Err() == nil {
		e.recordHolder(ctx)
		seen := e.lease.latestObservation()
		if out := e.standDownPause(ctx); out > 0 {
			e.waitForWake(ctx, out)
			continue
		}
		now, settled := e.clock.Now(), e.fence.unknownUntil()
		if settled.After(now) && !told {
			told = true
			logger.Info("Not competing yet, a write of the last term may still be done", "lease", e.lease, "for", settled.Sub(now).Round(time.Millisecond))
		}
		if left := timing.Later(settled, nextAttempt(seen, e.cfg.Identity, e.lease.minDuration, last, poll)).Sub(now); left > 0 {
			e.waitForWake(ctx, left)
			continue
		}
		h, judged, doubtful := e.acquire(ctx)
		if h != nil {
			return h
		}
		if doubts++; !doubtful {
			doubts = 0
		}
		if doubts == doubtLimit {
			doubts = 0
			logger.Info("Standing aside, writes to the lease are not answered", "lease", e.lease)
			e.StepDown("writes to the lease are not answered", e.remainedFree)
		}
		last = lastAttempt{at: e.clock.Now(), version: judged, pause: wait.Jitter(e.cfg.RetryPeriod/2, 1)}
		poll = wait.Jitter(3*e.cfg.RetryPeriod/2, 2.0/3) // 1.5 to 2.5 of them
	}
	return nil
}

// doubtLimit is how many tries in a row may end without an answer to their write. Each may have renewed a lease for a process that
// does not know it and so does not work, and that keeps it from all others.
const doubtLimit = 2

// untaken reports whether the lease has been free for so long that others would have taken it if they could. What we wrote ourselves and
// were not told of keeps it from being free.
func (e *Elector) remainedFree() bool {
	free, _ := e.lease.latestObservation().freeAt("", e.lease.minDuration)
	return e.clock.Now().After(free.Add(e.cfg.RetryPeriod))
}

// pause waits until d has passed, something was observed, or ctx ends.
func (e *Elector) waitForWake(ctx context.Context, d time.Duration) {
	timer := e.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-e.wake:
	case <-ctx.Done():
	}
}

// noteHolder logs a change of the holder, once. Another holder means that we are not alone.
func (e *Elector) recordHolder(ctx context.Context) {
	holder := e.lease.latestObservation().record.HolderIdentity
	e.lock.Lock()
	changed, other := holder != e.loggedHolder, holder != "" && holder != e.cfg.Identity
	e.loggedHolder = holder
	if other {
		e.standDown.aloneUntil = time.Time{}
	}
	e.lock.Unlock()
	if changed && other {
		klog.FromContext(ctx).Info("Standing by for another holder", "lease", e.lease, "holder", holder)
	}
}
