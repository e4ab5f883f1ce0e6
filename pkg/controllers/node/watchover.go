package node

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"minikcm/pkg/freshness"
)

// watchOver looks once a second at whether silence of nodes means anything, until ctx has ended.
func (c *Controller) watchOver(ctx context.Context) {
	remedies := make(chan remedy)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.runRemedies(ctx, remedies)
	}()
	defer func() { <-done }()
	defer close(remedies)

	ticker := c.clock.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := c.clock.Now()
		if stall := c.visibility.tick(now); stall > 0 {
			klog.FromContext(ctx).Info("The process stood still, nodes are given the time back", "stall", stall)
			c.stalled(stall, now)
		}
		c.tick(now)
		if e := c.visibility.remedy(c.cfg.MonitorPeriod, now); e != noRemedy {
			select {
			case remedies <- e:
			default: // the last one is still on its way
			}
		}
	}
}

// stalled gives nodes back the time in which we stood still. Those that were seen since, before the tick that noticed, have it already.
func (c *Controller) stalled(d time.Duration, now time.Time) {
	c.health.changeAll(func(_ string, r *nodeHealth) {
		if seen := r.heartbeat.seen.Add(d); seen.Before(now) {
			r.heartbeat.seen = seen
		} else if r.heartbeat.seen.Before(now) {
			r.heartbeat.seen = now
		}
	})
}

// tick brings everything that depends on our visibility up to date.
func (c *Controller) tick(now time.Time) {
	c.giveCredits()
	why := c.suspension(false, now)
	c.metrics.suspend(c.visibility.causes(why))
	c.wake(c.zones.freeze(why != causeNone, now), now)
}

// giveCredits gives nodes back the time in which we were blind.
func (c *Controller) giveCredits() {
	credits := c.visibility.credits()
	for _, b := range credits {
		c.health.changeAll(func(_ string, r *nodeHealth) {
			r.heartbeat = credit(r.heartbeat, b, c.cfg.MonitorGracePeriod)
		})
	}
	c.visibility.credited(len(credits))
}

// runRemedies makes the requests that must not hold up the ticks.
func (c *Controller) runRemedies(ctx context.Context, remedies <-chan remedy) {
	logger := klog.FromContext(ctx)
	for e := range remedies {
		ask := c.probe
		if e == relist {
			ask = c.lists.renew
		}
		if err := ask(ctx); err != nil && ctx.Err() == nil {
			logger.Info("The API server did not answer, silence of nodes is not acted upon", "err", err)
		}
	}
}

// confirmNodes compares the node cache with the API server once at the start of a term, and again until they agree: zones are
// decided over all nodes, so one live read of one node would not do.
func (c *Controller) confirmNodes(ctx context.Context) {
	for {
		err := c.compareNodes(ctx)
		if err == nil {
			c.confirmed.Store(true)
			return
		}
		if !errors.Is(err, freshness.ErrBehind) { // that is an answer: kubelets get theirs as well
			c.visibility.failed(reading("list", "nodes"), err, c.clock.Now())
		}
		klog.FromContext(ctx).V(2).Info("Node cache is not confirmed yet, no node is tainted NoExecute", "reason", err)
		if !c.pause(ctx, time.Second) {
			return
		}
	}
}

func (c *Controller) compareNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return c.nodes.Confirm(ctx, c.metadata, c.clock)
}

// pause waits. It reports whether ctx goes on.
func (c *Controller) pause(ctx context.Context, d time.Duration) bool {
	timer := c.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
