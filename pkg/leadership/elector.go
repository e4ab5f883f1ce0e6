package leadership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// ErrShutdownTimeout is in the error of Run if controllers, or requests of controllers, did not finish
// within the shutdown timeout. The requests were cancelled and the lease was left to expire.
var ErrShutdownTimeout = errors.New("controllers did not stop within the shutdown timeout")

// ErrLeadReturned is in the error of Run if Lead returned nil before the end of its term.
var ErrLeadReturned = errors.New("controllers returned before the end of the term")

// Term is one uninterrupted period of holding the lease.
type Term struct {
	Number uint64 // 1 for the first term of this process
	Cause  Cause  // how the lease had become free
}

// Lead runs the controllers for one term. ctx ends when the term ends: Lead must then take no new
// work, finish running syncs, join every goroutine and return. The fence cancels requests that must
// not finish. The context of a client request should be derived from ctx (context.WithoutCancel
// included), so that the request belongs to the term.
//
// An error, or a return before ctx ends, stops the process: Run releases the lease and returns the
// error.
type Lead func(ctx context.Context, term Term) error

// Deps are the dependencies of an Elector.
type Deps struct {
	Leases  coordinationv1client.LeasesGetter // see NewLeaseClient; not needed without election
	Events  record.EventRecorder              // records "became leader" and "stopped leading"; may be nil
	Fence   *Fence
	Metrics *Metrics
	Clock   clock.WithTicker // nil means the real clock

	// Seen records a resourceVersion of the Lease that a request has shown. A working watch delivers
	// that version at once. May be nil.
	Seen func(resourceVersion string)
}

// Elector holds the lease for this process, for one term after another.
type Elector struct {
	cfg   Config
	deps  Deps
	clock clock.WithTicker
	fence *Fence
	lease *leaseClient  // nil without election
	wake  chan struct{} // of size one: the lease or a field below has changed, for waitForLease and runPhases

	lock              sync.Mutex
	term              Term
	leading           bool          // during a term, and until the controllers have returned
	endedAt           time.Time     // end of the term in which leading is set; zero during a term
	renewedAt         time.Time     // when the last successful renewal was sent
	confirmedDuration time.Duration // of the lease from renewedAt, for the deadlines of writes
	lostReason        string        // of the running term or of the current attempt; empty while the lease is held
	loggedHolder      string
	standDown         standDown
}

// New returns an elector. Run starts it. The error joins all problems of cfg.
func New(cfg Config, deps Deps) (*Elector, error) {
	errs := cfg.Validate()
	if cfg.Enabled && cfg.Identity == "" {
		errs = append(errs, errors.New("identity must not be empty"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	if deps.Seen == nil {
		deps.Seen = func(string) {}
	}
	e := &Elector{cfg: cfg.rounded(), deps: deps, clock: deps.Clock, fence: deps.Fence, wake: make(chan struct{}, 1)}
	if e.clock == nil {
		e.clock = clock.RealClock{}
	}
	if cfg.Enabled {
		e.lease = &leaseClient{
			client:    deps.Leases.Leases(cfg.Namespace),
			namespace: cfg.Namespace, name: cfg.Name, identity: cfg.Identity,
			minDuration: cfg.LeaseDuration.Truncate(time.Second), clock: e.clock, seenVersion: deps.Seen,
		}
	}
	deps.Metrics.registerElector(e)
	return e, nil
}

// Observe passes an event of the Lease informer to the elector: the object of an add or update, nil
// for a delete. Other Leases are ignored. Observe returns soon, and may end the running term before.
// It may be called before Run.
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

// Run competes for the lease and calls lead once per term until ctx ends. It returns nil after a clean
// shutdown, an error with ErrShutdownTimeout if the drain took too long, or the error of lead. It is
// called once.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	if e.lease == nil {
		_, err := e.runTerm(ctx, attemptResult{cause: CauseInitial, freeSince: e.clock.Now()}, lead)
		return err
	}
	for {
		won := e.waitForLease(ctx)
		if !won.held {
			return nil
		}
		if stop, err := e.runTerm(ctx, won, lead); stop {
			return err
		}
	}
}

// maxUnknownWrites is the number of consecutive attempts with unknown outcomes after which a standby
// steps down. Each attempt may have renewed the lease without a leader, which keeps other processes
// from leading.
const maxUnknownWrites = 2

// waitForLease waits until this process holds the lease, or until ctx ends.
func (e *Elector) waitForLease(ctx context.Context) (result attemptResult) {
	logger := klog.FromContext(ctx)
	logger.Info("Waiting for the lease", "lease", e.lease, "identity", e.cfg.Identity)
	var last lastAttempt
	poll, unknownWrites, logged := time.Duration(0), 0, false
	for ctx.Err() == nil {
		e.recordHolder(ctx)
		seen := e.lease.latestObservation()
		if pause := e.standDownPause(ctx); pause > 0 {
			e.waitForWake(ctx, pause)
			continue
		}
		now, unknownUntil := e.clock.Now(), e.fence.unknownUntil()
		if unknownUntil.After(now) && !logged {
			logged = true
			logger.Info("Not competing until writes with unknown outcome have completed", "lease", e.lease, "duration", unknownUntil.Sub(now).Round(time.Millisecond))
		}
		next := timing.Later(unknownUntil, nextAttempt(seen, e.cfg.Identity, e.lease.minDuration, last, poll))
		if pause := next.Sub(now); pause > 0 {
			e.waitForWake(ctx, pause)
			continue
		}
		if result = e.acquire(ctx); result.held {
			return result
		}
		if unknownWrites++; !result.unknown {
			unknownWrites = 0
		}
		if unknownWrites == maxUnknownWrites {
			unknownWrites = 0
			logger.Info("Standing down, writes to the lease have unknown outcomes", "lease", e.lease)
			e.StepDown("writes to the lease have unknown outcomes", e.remainedFree)
		}
		last = lastAttempt{at: e.clock.Now(), version: result.version, pause: wait.Jitter(e.cfg.RetryPeriod/2, 1)}
		poll = wait.Jitter(3*e.cfg.RetryPeriod/2, 2.0/3) // 1.5 to 2.5 retry periods
	}
	return result
}

// remainedFree reports whether the lease has been free for so long that any other candidate would have
// taken the lease. Own writes with unknown outcome keep the lease from being free.
func (e *Elector) remainedFree() bool {
	free, _ := e.lease.latestObservation().freeAt("", e.lease.minDuration)
	return e.clock.Now().After(free.Add(e.cfg.RetryPeriod))
}

func (e *Elector) waitForWake(ctx context.Context, d time.Duration) {
	timer := e.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-e.wake:
	case <-ctx.Done():
	}
}

// recordHolder logs a change of the holder once. Another holder is another candidate.
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

// attemptLease makes one attempt to acquire or renew the lease and records the result.
func (e *Elector) attemptLease(ctx context.Context, renewing bool) attemptResult {
	result := e.lease.acquireOrRenew(ctx, renewing, e.leaseDurations)
	logger := klog.FromContext(ctx)
	switch {
	case result.err == nil || errors.Is(ctx.Err(), context.Canceled):
	case apierrors.IsConflict(result.err) || apierrors.IsAlreadyExists(result.err):
		logger.V(2).Info("Another process changed the lease", "lease", e.lease, "err", result.err)
	default:
		logger.Error(result.err, "Failed to acquire or renew the lease", "lease", e.lease)
	}
	if result.held {
		e.recordHeld(result)
	}
	if result.lostReason != "" {
		e.lock.Lock()
		e.loseLease(result.lostReason)
		e.lock.Unlock()
	}
	return result
}

func (e *Elector) recordHeld(result attemptResult) {
	e.fence.extendDeadline(e.cfg.limitsAfter(result.sent, result.reliable))
	e.deps.Metrics.lease.Set(result.written.Truncate(time.Second).Seconds())
	e.lock.Lock()
	defer e.lock.Unlock()
	if result.reliable > e.confirmedDuration {
		signal(e.wake)
	}
	e.renewedAt, e.confirmedDuration = result.sent, result.reliable
}

// leaseDurations returns the arguments of the next renewal, see renewalDurations.
func (e *Elector) leaseDurations() (renewal, reliable time.Duration) {
	slow := e.fence.hasSlowWrites()
	if !slow {
		e.shortenDeadline() // before unknownUntil: later writes must not get longer deadlines than unknownUntil covers
	}
	return renewalDurations(slow, e.fence.unknownUntil(), e.clock.Now(), e.cfg.LeaseDuration, e.cfg.extendedLease())
}

// shortenDeadline gives later writes the deadline of the configured lease.
func (e *Elector) shortenDeadline() {
	short := e.cfg.LeaseDuration
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.confirmedDuration > short {
		e.confirmedDuration = short
		e.fence.shortenDeadline(e.cfg.limitsAfter(e.renewedAt, short))
		signal(e.wake)
	}
}

// releaseLease releases the lease. If expires is not zero, the lease is left to expire then. Failures
// are only logged: then the lease expires.
func (e *Elector) releaseLease(ctx context.Context, expires time.Time) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, min(releaseTimeout, e.cfg.RenewDeadline))
	defer cancel()
	begun := e.clock.Now()
	err := e.lease.release(ctx, expires)
	switch {
	case errors.Is(err, errNotOurs):
		logger.Info("Nothing to release", "lease", e.lease, "reason", err)
	case err != nil:
		logger.Error(err, "Failed to release the lease", "lease", e.lease)
	case !expires.IsZero():
		logger.Info("Not releasing the lease, writes have unknown outcomes", "lease", e.lease, "expiresIn", expires.Sub(begun).Round(time.Millisecond))
	default:
		logger.Info("Released the lease", "lease", e.lease, "duration", e.clock.Since(begun).Round(time.Millisecond))
	}
}

// loseLease ends the running term and keeps the first reason. The caller holds the lock until the fence
// has cancelled all requests, so that no other term can begin in between.
func (e *Elector) loseLease(reason string) {
	e.lostReason = cmp.Or(e.lostReason, reason)
	e.fence.abortTerm(reason)
	signal(e.wake)
}

// whyLost returns an empty string while the lease is held.
func (e *Elector) whyLost() string {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.lostReason
}

// recordEvent records an event on the Lease, as client-go's resourcelock does.
func (e *Elector) recordEvent(text string) {
	if lease, _ := e.lease.storedLease(); e.deps.Events != nil && lease != nil {
		e.deps.Events.Eventf(lease, corev1.EventTypeNormal, "LeaderElection", "%s %s", e.cfg.Identity, text)
	}
}

// renewalAge returns the time since the last successful renewal was sent. It returns 0 while not
// leading.
func (e *Elector) renewalAge() time.Duration {
	e.lock.Lock()
	defer e.lock.Unlock()
	if !e.leading || !e.endedAt.IsZero() || e.lease == nil {
		return 0
	}
	return e.clock.Since(e.renewedAt)
}

// healthTolerance is the time after which an overdue leader is unhealthy, as in
// kube-controller-manager v1.37.
const healthTolerance = 20 * time.Second

// Name returns the name of the health check, as in kube-controller-manager.
func (e *Elector) Name() string { return "leaderElection" }

// Check fails while this process leads and its last renewal is older than the lease duration and 20 s.
// It also fails while controllers of an ended term have not returned for longer than both that time
// and the shutdown timeout. An outage of the API server ends terms, so Check does not depend on the
// API server.
func (e *Elector) Check(*http.Request) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.lease == nil || !e.leading {
		return nil
	}
	return checkStuck(e.clock.Since(e.renewedAt), e.endedAt, e.clock.Now(), e.cfg)
}

// checkStuck decides on the health of a leader. endedAt is zero during a term.
func checkStuck(renewalAge time.Duration, endedAt, now time.Time, cfg Config) error {
	limit := cfg.LeaseDuration + healthTolerance
	if endedAt.IsZero() || cfg.ShutdownTimeout == 0 { // a drain without a limit renews the lease
		if renewalAge > limit {
			return fmt.Errorf("the lease %s was last renewed %v ago", cfg.Name, renewalAge.Round(time.Second))
		}
		return nil
	}
	if overdue := now.Sub(endedAt); overdue > max(limit, cfg.ShutdownTimeout+healthTolerance) {
		return fmt.Errorf("the term on lease %s ended %v ago and controllers still run", cfg.Name, overdue.Round(time.Second))
	}
	return nil
}

// signal makes a channel of size one ready.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
