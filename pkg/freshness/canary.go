package freshness

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
	monitor *Monitor
	target  watchTarget

	reopened  bool   // in this episode
	delivered string // what the watch had delivered when it was reopened
}

func newCanary(m *Monitor) *canary {
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	return &canary{monitor: m, target: watchTarget{leases, m.deps.LeaseNamespace}}
}

// look is one round.
func (c *canary) look(ctx context.Context) {
	ahead, delivered, since := c.monitor.deps.Election.LeaseLag()
	h, now := c.monitor.deps.Transport.activityOf(c.target), c.monitor.clock.Now()
	if c.reopened && delivered != c.delivered {
		c.reopened = false
		c.monitor.setCurrent(ctx, suspicion{c.target, true})
	}
	s := canarySight{ahead: ahead, open: h.open, silent: now.Sub(h.lastByte), reopened: c.reopened}
	switch judgeCanary(s, c.monitor.deps.RetryPeriod) {
	case reopen:
		klog.FromContext(ctx).Info("Reopening the watch of the lease, it misses renewals", "missed", ahead, "since", since)
		c.reopened, c.delivered = true, delivered
		c.reopen(now)
	case declare:
		c.reopen(now) // it is over when that helps
		c.monitor.setStale(ctx, suspicion{c.target, true}, fmt.Sprintf("the watch has shown nothing of the lease after version %s", delivered))
	}
}

// reopen gives the watch another chance, on another connection if all watches are silent.
func (c *canary) reopen(now time.Time) {
	c.monitor.deps.Election.LeaseReopened()
	c.monitor.deps.Transport.reopen(c.target, now.Add(-canaryLimit*c.monitor.deps.RetryPeriod))
}
