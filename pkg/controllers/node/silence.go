package node

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// silence takes in the signs of life of nodes and says whether their silence may be trusted: that of one node by prove, that of all by
// suspended. Within a term it makes the requests that visibility asks for, and gives nodes the time back in which nobody could have seen a sign
// of life.
type silence struct {
	cfg        Config
	clock      clock.WithTicker
	metrics    *metrics
	health     *healthMap
	visibility *visibility
	leases     *leaseReader
}

// begin starts a term.
func (s *silence) begin(now time.Time) {
	s.visibility.begin(now)
	s.giveCredits()
	s.leases.begin()
}

// end ends a term.
func (s *silence) end() { s.visibility.end() }

// observeNode takes in the state of a node. Each is to be taken in once: an old one seen twice would look like a new heartbeat.
func (s *silence) observeNode(node *corev1.Node) nodeHealth {
	return s.health.node(node, s.leases.cached(node.Name), s.clock.Now())
}

// observeLease takes in what the watch showed of a Lease.
func (s *silence) observeLease(lease *coordinationv1.Lease) {
	now := s.clock.Now()
	s.visibility.event(now)
	if lease.Namespace == corev1.NamespaceNodeLease {
		s.health.lease(lease.Name, renewal(lease), now)
	}
}

// suspended says why no verdict may be passed and no node tainted NoExecute at now; see visibility.suspended for exhausted.
func (s *silence) suspended(exhausted bool, now time.Time) cause {
	s.visibility.caughtUp(s.leases.cache.Version())
	return s.visibility.suspended(exhausted, now)
}

// forget drops what is known of a node that is gone.
func (s *silence) forget(node string) { s.health.forget(node, "") }

// prove says whether a node that has been silent for too long by what is known, h, has been so in truth. If not, it says when to judge the
// node again. It asks the API server itself, because the watch may be late.
func (s *silence) prove(ctx context.Context, node *corev1.Node, h nodeHealth, now time.Time) (judgement, error) {
	if why := s.suspended(h.isExhausted(s.cfg), now); why != causeNone && !s.visibility.triesWrite(false, now) {
		return s.suppress(why), nil
	}
	if err := s.leases.readSince(ctx, node.Name, h.due(s.cfg)); err != nil {
		s.metrics.suppressed.WithLabelValues(suppressedUnreachable).Inc()
		return judgement{}, err
	}
	now = s.clock.Now()
	live, ok := s.health.of(node.Name, node.UID)
	if !ok {
		return judgement{}, nil // the node is gone, or another one of the name: its events will come
	}
	if !live.judge(s.cfg, now).silent {
		return judgement{recheck: s.alive(node, now)}, nil
	}
	// An answer that was asked for before an outage and came after it proves nothing: kubelets have not had their time yet.
	if why := s.suspended(h.isExhausted(s.cfg), now); why != causeNone && !s.visibility.triesWrite(true, now) {
		return s.suppress(why), nil
	}
	return judgement{silent: true}, nil
}

// suppress holds a verdict back while verdicts are suspended.
func (s *silence) suppress(why cause) judgement {
	s.metrics.suppressed.WithLabelValues(why.suppressed()).Inc()
	return judgement{recheck: why.recheck()}
}

// alive notes that a live read showed a sign of life of a node that was about to be set to Unknown. It returns when to judge it again.
func (s *silence) alive(node *corev1.Node, now time.Time) (recheck time.Duration) {
	s.metrics.suppressed.WithLabelValues(suppressedAlive).Inc()
	s.health.change(node.Name, node.UID, func(h *nodeHealth) {
		h.judged = now
		recheck = max(0, h.due(s.cfg).Sub(now)) + deadlineSlack
	})
	return recheck
}

// watch finds out once a second whether silence may be trusted, and calls freeze at each tick, until ctx has ended.
func (s *silence) watch(ctx context.Context, freeze func(frozen bool, now time.Time)) {
	remedies := make(chan remedy)
	var running sync.WaitGroup
	running.Go(func() { s.apply(ctx, remedies) })
	defer running.Wait()
	defer close(remedies)

	ticker := s.clock.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := s.clock.Now()
		if stall := s.visibility.tick(now); stall > 0 {
			klog.FromContext(ctx).Info("The process stood still, nodes are given the time back", "stall", stall)
			s.giveBack(stall, now)
		}
		s.giveCredits()
		why := s.suspended(false, now)
		s.metrics.suspend(s.visibility.causes(why))
		freeze(why != causeNone, now)
		if r := s.visibility.remedy(now); r != noRemedy {
			select {
			case remedies <- r:
			default: // the last one is still on its way
			}
		}
	}
}

// apply makes the requests that must not hold up the ticks.
func (s *silence) apply(ctx context.Context, remedies <-chan remedy) {
	for r := range remedies {
		ask := s.leases.probe
		if r == relist {
			ask = s.leases.lists.renew
		}
		if err := ask(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Info("The API server did not answer, silence of nodes is not acted upon", "err", err)
		}
	}
}

// giveBack gives nodes the time in which we stood still. Those that were seen since, before the tick that noticed, have it already.
func (s *silence) giveBack(stall time.Duration, now time.Time) {
	s.health.changeAll(func(h *nodeHealth) {
		if seen := h.heartbeat.seen.Add(stall); seen.Before(now) {
			h.heartbeat.seen = seen
		} else if h.heartbeat.seen.Before(now) {
			h.heartbeat.seen = now
		}
	})
}

// giveCredits gives nodes the time in which we were blind.
func (s *silence) giveCredits() {
	credits := s.visibility.credits()
	for _, b := range credits {
		s.health.changeAll(func(h *nodeHealth) { h.heartbeat = credit(h.heartbeat, b, s.cfg.MonitorGracePeriod) })
	}
	s.visibility.credited(len(credits))
}
