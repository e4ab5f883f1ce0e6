package leadership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
)

// canary judges the watch that carries our own Lease. Something is written there every retry period, by us
// or by the leader, and our own requests tell what; so its silence is noticed in seconds.
type canary struct {
	l      *Liveness
	turn   *leaseLock
	target watchTarget

	reopened  bool   // in this episode
	delivered string // what the watch had delivered when it was reopened
}

func newCanary(l *Liveness, turn *leaseLock) *canary {
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	return &canary{l: l, turn: turn, target: watchTarget{leases, turn.namespace}}
}

// look is one round.
func (c *canary) look(ctx context.Context) {
	lag, h, now := c.turn.lag(), c.l.deps.Streams.hear(c.target), c.l.clock.Now()
	if c.reopened && lag.version != c.delivered {
		c.reopened = false
		c.l.setCurrent(ctx, suspicion{c.target, true})
	}
	s := canarySight{ahead: lag.ahead, open: h.open, silent: now.Sub(h.heard), reopened: c.reopened}
	switch judgeCanary(s, c.l.deps.Elector.cfg.RetryPeriod) {
	case reopen:
		klog.FromContext(ctx).Info("Reopening the watch of the lease, it misses renewals", "missed", lag.ahead, "since", lag.since)
		c.reopened, c.delivered = true, lag.version
		c.reopen(now)
	case declare:
		c.reopen(now) // it is over when that helps
		c.l.setStale(ctx, suspicion{c.target, true}, fmt.Sprintf("the watch has shown nothing of the lease after version %s", lag.version))
	}
}

// reopen gives the watch another chance, on another connection if all watches are silent.
func (c *canary) reopen(now time.Time) {
	c.turn.reopened()
	c.l.deps.Streams.reopen(c.target, now.Add(-canaryLimit*c.l.deps.Elector.cfg.RetryPeriod))
}
