package leadership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// ErrShutdownTimeout is in the error of Run when controllers were still working, or a request of theirs was not answered, after the
// shutdown timeout. Their requests were cut and the lease was left to expire.
var ErrShutdownTimeout = errors.New("controllers did not stop within the shutdown timeout")

// ErrLeadReturned is in the error of Run when Lead returned nil before its term ended.
var ErrLeadReturned = errors.New("controllers returned before the end of the term")

// Term is one uninterrupted holding of the lease, as those know it who work in it.
type Term struct {
	Number uint64 // 1 for the first term of this process
	Cause  Cause  // how the lease had become free
}

// Lead works for one term. ctx ends when the term does; it means drain: take no new work, finish what
// runs, join every goroutine, return. What must not finish is cut by the fence. A client request should
// carry ctx or a context derived from it (context.WithoutCancel included): so it belongs to the term.
//
// A non-nil error, or a return before ctx ends, stops the process: Run releases the lease and returns it.
type Lead func(ctx context.Context, term Term) error

// Deps are what an Elector works with.
type Deps struct {
	Leases  coordinationv1client.LeasesGetter // see NewLeaseClient; not needed with election off
	Events  record.EventRecorder              // records "became leader" and "stopped leading"; may be nil
	Fence   *Fence
	Metrics *Metrics
	Clock   clock.WithTicker // nil: the real one

	// Flush is called after the release of the lease and before Run goes on, for events of controllers that still wait to be sent.
	// ctx bounds it to a second. May be nil.
	Flush func(ctx context.Context)
}

// Elector holds the lease for this process, one term after the other.
type Elector struct {
	cfg   Config
	deps  Deps
	clock clock.WithTicker
	fence *Fence
	lease *leaseClient  // nil with election off
	wake  chan struct{} // of size one; makes the standby or the running term look at the fields below and at the lease again

	lock              sync.Mutex
	term              Term
	leading           bool          // from begin to retire; it stays true if the controllers have not returned
	endedAt           time.Time     // when the running term was found to be over; zero while it goes on
	renewedAt         time.Time     // when the last successful renewal was sent
	confirmedDuration time.Duration // how much of the lease, from renewed on, the deadlines of writes are computed from
	leaseHolder       *leaseHolder  // of the running term, or of the acquisition under way; nil after a term
	loggedHolder      string        // the holder that was last logged

	standDown standDown
}

// New returns an elector that does nothing before Run. The error joins every problem of cfg.
func New(cfg Config, deps Deps) (*Elector, error) {
	errs := cfg.Validate()
	if cfg.Enabled && cfg.Identity == "" {
		errs = append(errs, errors.New("identity must not be empty"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	e := &Elector{cfg: cfg.rounded(), deps: deps, clock: deps.Clock, fence: deps.Fence, wake: make(chan struct{}, 1)}
	if e.clock == nil {
		e.clock = clock.RealClock{}
	}
	if cfg.Enabled {
		e.lease = &leaseClient{
			client:    deps.Leases.Leases(cfg.Namespace),
			namespace: cfg.Namespace, name: cfg.Name, identity: cfg.Identity,
			minDuration: cfg.LeaseDuration.Truncate(time.Second), clock: e.clock,
		}
	}
	deps.Metrics.registerElector(e)
	return e, nil
}

// Observe tells the elector what the shared Lease informer delivered about the Lease it competes for: the
// object on add and update, nil on delete. Other Leases are ignored. It does not block for long, and may
// end the running term before it returns. May be called at any time, also before Run.
func (e *Elector) Observe(lease *coordinationv1.Lease) {
	if e.lease == nil || lease != nil && (lease.Namespace != e.cfg.Namespace || lease.Name != e.cfg.Name) {
		return
	}
	e.lock.Lock()
	if reason := e.lease.observeEvent(lease); reason != "" {
		e.loseLease(reason)
	}
	e.lock.Unlock()
	signal(e.wake)
}

// Run competes for the lease and calls lead once per term, never twice at a time, until ctx ends.
// See the package comment for what happens at the end of a term. It returns nil after a clean shutdown, an
// error with ErrShutdownTimeout if the drain took too long, or the error of lead. Call it once.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	if e.lease == nil {
		_, err := e.runTerm(ctx, nil, lead)
		return err
	}
	for {
		won := e.waitForLease(ctx)
		if won == nil {
			return nil
		}
		if over, err := e.runTerm(ctx, won, lead); over {
			return err
		}
	}
}

// renewalAge returns the time since the last successful renewal was sent, 0 while not leading.
func (e *Elector) renewalAge() time.Duration {
	e.lock.Lock()
	defer e.lock.Unlock()
	if !e.leading || !e.endedAt.IsZero() || e.lease == nil {
		return 0
	}
	return e.clock.Since(e.renewedAt)
}

// recordEvent records an event on the Lease, as client-go's resourcelock does.
func (e *Elector) recordEvent(text string) {
	if lease, _ := e.lease.storedLease(); e.deps.Events != nil && lease != nil {
		e.deps.Events.Eventf(lease, corev1.EventTypeNormal, "LeaderElection", "%s %s", e.cfg.Identity, text)
	}
}

// lose takes in that somebody else holds the lease. Nothing may be written from now on. The lock is held until the fence has ended, so that
// no other holding can begin in between, whose fence that would be.
func (e *Elector) loseLease(reason string) {
	if e.leaseHolder != nil {
		e.leaseHolder.markLost(reason)
	}
	e.fence.abortTerm(reason) // after lose: begin looks at that when it has opened the fence
}

// signal makes a channel of size one ready, if it is not.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// LeaseLag is how many versions of the Lease were seen by requests since its watch last delivered one, which version that was, and when it was
// first missed. Without election it is zero.
func (e *Elector) LeaseLag() (ahead int, delivered string, since time.Time) {
	if e.lease == nil {
		return 0, "", time.Time{}
	}
	lag := e.lease.lag()
	return lag.ahead, lag.version, lag.since
}

// LeaseReopened starts that count anew, because the watch was reopened.
func (e *Elector) LeaseReopened() {
	if e.lease != nil {
		e.lease.reopened()
	}
}
