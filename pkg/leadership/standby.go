package leadership

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// candidacy is one run of client-go's elector: a single try to take the lease which, if it wins, goes on
// renewing. A new one for each try, because an elector at work cannot be told to try now.
type candidacy struct {
	won    chan struct{} // closed when it leads
	failed chan struct{} // its try has failed; it will not win any more if it is stopped now
	lost   chan struct{} // closed when the Lease was seen in other hands
	done   chan struct{} // closed when it has returned
	stop   context.CancelFunc

	once   sync.Once
	reason string // why lost; written once, before lost is closed
}

// lose ends the candidacy's leading. Only the first reason counts.
func (c *candidacy) lose(reason string) {
	c.once.Do(func() {
		c.reason = reason
		close(c.lost)
	})
}

// endings are the channels that tell of the end of leading; nil ones, that never do, with election off.
func (c *candidacy) endings() (lost, done <-chan struct{}) {
	if c == nil {
		return nil, nil
	}
	return c.lost, c.done
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

// stand starts a candidacy. It outlives ctx: a leader renews while it drains.
func (e *Elector) stand(ctx context.Context) *candidacy {
	// what client-go says of each try is detail here
	ctx = klog.NewContext(context.WithoutCancel(ctx), klog.FromContext(ctx).V(4))
	ctx, stop := context.WithCancel(ctx)
	c := &candidacy{won: make(chan struct{}), failed: make(chan struct{}, 1), lost: make(chan struct{}),
		done: make(chan struct{}), stop: stop}
	e.lock.Lock()
	e.run = c
	e.lock.Unlock()
	elector, err := e.newElector(func(context.Context) { close(c.won) })
	if err != nil { // its rules are a part of Validate
		klog.FromContext(ctx).Error(err, "Cannot build the elector")
		stop()
		close(c.done)
		return c
	}
	go func() {
		defer close(c.done)
		elector.Run(ctx)
	}()
	return c
}

// newElector builds client-go's elector, which also sets leader_election_master_status to 0. It never
// releases: it would do so after a lost lease too, whoever holds it then, and before anybody was joined.
func (e *Elector) newElector(started func(context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e.turn,
		LeaseDuration: e.cfg.LeaseDuration,
		RenewDeadline: e.cfg.RenewDeadline,
		RetryPeriod:   e.cfg.RetryPeriod,
		Name:          e.cfg.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: started,
			OnStoppedLeading: func() {},
		},
	})
}

// standby waits until it has won the lease, or returns nil when ctx ends.
func (e *Elector) standby(ctx context.Context) *candidacy {
	logger := klog.FromContext(ctx)
	logger.Info("Waiting for the lease", "lease", e.turn.Describe(), "identity", e.cfg.Identity)
	var last attempt
	poll, doubts, held := time.Duration(0), 0, false
	for ctx.Err() == nil {
		e.noteHolder(ctx)
		seen := e.turn.observed()
		if wait := e.outFor(ctx); wait > 0 {
			e.pause(ctx, wait)
			continue
		}
		now, settled := e.clock.Now(), e.fence.settled()
		if settled.After(now) && !held {
			held = true
			logger.Info("Not competing yet, a write of the last term may still be done", "lease", e.turn.Describe(), "for", settled.Sub(now).Round(time.Millisecond))
		}
		if wait := later(settled, nextTry(seen, e.cfg.Identity, e.turn.least, last, poll)).Sub(now); wait > 0 {
			e.pause(ctx, wait)
			continue
		}
		c, doubtful := e.try(ctx)
		if c != nil {
			return c
		}
		if doubts++; !doubtful {
			doubts = 0
		}
		if doubts == doubtLimit {
			doubts = 0
			logger.Info("Standing aside, writes to the lease are not answered", "lease", e.turn.Describe())
			e.StepDown("writes to the lease are not answered", e.untaken)
		}
		last = attempt{at: e.clock.Now(), version: e.turn.judged(), pause: between(e.cfg.RetryPeriod, 0.5, 1)}
		poll = between(e.cfg.RetryPeriod, 1.5, 2.5)
	}
	return nil
}

// doubtLimit is how many tries in a row may end without an answer to their write. Each may have renewed a lease for a process that
// does not know it and so does not work, and that keeps it from all others.
const doubtLimit = 2

// untaken reports whether the lease has been free for so long that others would have taken it if they could. What we wrote ourselves and
// were not told of keeps it from being free.
func (e *Elector) untaken() bool {
	free, _ := e.turn.observed().free("", e.turn.least)
	return e.clock.Now().After(free.Add(e.cfg.RetryPeriod))
}

// try makes one attempt at the lease. It returns the leading candidacy, or nil and whether the lease may be ours all the same.
func (e *Elector) try(ctx context.Context) (c *candidacy, doubtful bool) {
	c = e.stand(ctx)
	select {
	case <-c.won:
		return c, false
	case <-c.failed:
	case <-c.done:
	case <-ctx.Done():
		e.abandon(ctx, c)
		return nil, false
	}
	c.stop()
	<-c.done
	doubtful = e.turn.mayHold()
	e.turn.resign()
	return nil, doubtful
}

// abandon ends a try at shutdown. It gives a write on its way a moment to be answered, and gives back a
// lease that was won, or may have been.
func (e *Elector) abandon(ctx context.Context, c *candidacy) {
	timer := e.clock.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-c.won:
	case <-c.failed:
	case <-c.done:
	case <-timer.C():
	}
	c.stop()
	<-c.done
	if e.turn.mayHold() {
		e.leave(context.WithoutCancel(ctx), func() time.Duration { return 0 })
	}
}

// pause waits until d has passed, something was observed, or ctx ends.
func (e *Elector) pause(ctx context.Context, d time.Duration) {
	timer := e.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-e.wake:
	case <-ctx.Done():
	}
}

// noteHolder logs a change of the holder, once. Another holder means that we are not alone.
func (e *Elector) noteHolder(ctx context.Context) {
	holder := e.turn.observed().record.HolderIdentity
	e.lock.Lock()
	changed, other := holder != e.holder, holder != "" && holder != e.cfg.Identity
	e.holder = holder
	if other {
		e.alone = time.Time{}
	}
	e.lock.Unlock()
	if changed && other {
		klog.FromContext(ctx).Info("Standing by for another holder", "lease", e.turn.Describe(), "holder", holder)
	}
}

// between is a random part of d, so that standbys do not move in step.
func between(d time.Duration, low, high float64) time.Duration {
	return time.Duration(float64(d) * (low + rand.Float64()*(high-low)))
}
