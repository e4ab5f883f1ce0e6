package leadership

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// Lead runs the controllers for one term. The terms of a process are counted from 1. ctx ends when the
// term ends: Lead must then take no new work, finish running syncs, join every goroutine and return. The
// fence cancels requests that must not finish. The context of a client request should be derived from ctx
// (context.WithoutCancel included), so that the request belongs to the term.
//
// An error, or a return before ctx ends, stops the process: Run releases the lease and returns the
// error.
type Lead func(ctx context.Context, term uint64) error

// Deps are the dependencies of an Elector.
type Deps struct {
	Leases  coordinationv1client.LeasesGetter // see NewLeaseClient; not needed without election
	Events  record.EventRecorder              // records "became leader" and "stopped leading"; may be nil
	Fence   *Fence
	Metrics *Metrics

	// Expect records a resourceVersion of the Lease that a request has shown. A working watch delivers
	// that version at once. May be nil.
	Expect func(resourceVersion string)
}

// Elector holds the lease for this process, for one term after another.
type Elector struct {
	cfg   Config
	deps  Deps
	clock clock.Clock
	fence *Fence
	lease *leaseClient  // nil without election
	wake  chan struct{} // of size one: the lease or a field below has changed, for waitForLease and runPhases

	lock                 sync.Mutex
	term                 uint64        // of the current or last term; 0 before the first
	leading              bool          // during a term, and until the controllers have returned
	renewedAt            time.Time     // when the last successful renewal was sent
	confirmedDuration    time.Duration // of the lease from renewedAt, for the deadlines of writes
	lostReason           string        // of the running term or of the current attempt; empty while the lease is held
	standDown            standDown
	stepDownIgnoredUntil time.Time // see StepDown
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
	if deps.Expect == nil {
		deps.Expect = func(string) {}
	}
	e := &Elector{cfg: cfg.rounded(), deps: deps, clock: deps.Fence.clock, fence: deps.Fence, wake: make(chan struct{}, 1)}
	if cfg.Enabled {
		e.lease = &leaseClient{
			client:    deps.Leases.Leases(cfg.Namespace),
			namespace: cfg.Namespace, name: cfg.Name, identity: cfg.Identity,
			minDuration: e.cfg.LeaseDuration, maxDuration: e.cfg.extendedLease(),
			clock: e.clock, expectVersion: deps.Expect, reportLoss: e.loseLease, durations: e.leaseDurations,
		}
	}
	deps.Metrics.registerElector(e)
	return e, nil
}

// Observe passes an event of the Lease informer to the elector: the object of an add or update, nil
// for a delete. Other Leases are ignored. Observe returns soon, and may end the running term.
// It may be called before Run.
func (e *Elector) Observe(lease *coordinationv1.Lease) {
	if e.lease == nil || lease != nil && (lease.Namespace != e.cfg.Namespace || lease.Name != e.cfg.Name) {
		return
	}
	e.lease.observeEvent(lease)
	timing.Signal(e.wake)
}

// Run competes for the lease and calls lead once per term until ctx ends. It returns nil after a clean
// shutdown, an error with ErrShutdownTimeout if the drain took too long, the error of lead, or, of a
// former leader, that certificates or credentials are rejected for 10 s. It is called once.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	if e.lease == nil {
		_, err := e.runTerm(ctx, attemptResult{cause: CauseInitial, freeSince: e.clock.Now()}, lead)
		return err
	}
	for {
		won := e.waitForLease(ctx)
		if !won.held {
			return won.err
		}
		if stop, err := e.runTerm(ctx, won, lead); stop {
			return err
		}
	}
}

// maxUnknownWrites is the number of consecutive writes with unknown outcomes after which a standby
// steps down. Each write may have renewed the lease without a leader, which keeps other processes
// from leading.
const maxUnknownWrites = 2

// credentialsTimeout is the time after which a former leader returns an error if the API server rejects its
// credentials, or this process the certificate of the API server. A restart reads the kubeconfig again. Other
// standbys wait, as upstream's.
const credentialsTimeout = 10 * time.Second

// waitForLease waits until this process holds the lease, or until ctx ends. Its result has an error after
// credentialsTimeout.
func (e *Elector) waitForLease(ctx context.Context) (result attemptResult) {
	klog.FromContext(ctx).Info("Waiting for the lease", "lease", e.lease, "identity", e.cfg.Identity)
	var last lastAttempt
	var seen observation
	poll, unknownWrites, rejectedSince := time.Duration(0), 0, time.Time{}
	for ctx.Err() == nil {
		before := seen.record.HolderIdentity
		seen = e.lease.latestObservation()
		e.recordHolder(ctx, seen.record.HolderIdentity, before)
		pause := e.standDownPause(ctx)
		if pause == 0 {
			next := nextAttempt(seen, e.cfg.Identity, e.lease.minDuration, last, poll)
			pause = timing.Later(e.fence.unknownUntil(), next).Sub(e.clock.Now())
		}
		if pause > 0 {
			e.waitForWake(ctx, pause)
			continue
		}
		if result = e.acquire(ctx); result.held {
			return result
		}
		_, unverified := errors.AsType[*tls.CertificateVerificationError](result.err)
		switch now := e.clock.Now(); {
		case e.term == 0, !unverified && !apierrors.IsUnauthorized(result.err):
			rejectedSince = time.Time{}
		case rejectedSince.IsZero():
			rejectedSince = now
		case now.Sub(rejectedSince) >= credentialsTimeout:
			return attemptResult{err: fmt.Errorf("certificates or credentials have been rejected for %v: %w", credentialsTimeout, result.err)}
		}
		switch {
		case result.unknown:
			unknownWrites++
		case result.sentGet: // without a response to the read there was no write
			unknownWrites = 0
		}
		if unknownWrites >= maxUnknownWrites {
			unknownWrites = 0
			e.StepDown("writes to the lease have unknown outcomes", e.remainedFree)
		}
		last = lastAttempt{at: e.clock.Now(), version: result.version, pause: wait.Jitter(e.cfg.RetryPeriod/2, 1)}
		poll = wait.Jitter(3*e.cfg.RetryPeriod/2, 2.0/3) // 1.5 to 2.5 retry periods
	}
	return attemptResult{}
}

// acquire makes one attempt to acquire the lease. The attempt ends one second after ctx, because a
// cancelled write may still acquire the lease. If ctx has ended, acquire releases the lease and returns a
// result that does not hold the lease.
func (e *Elector) acquire(ctx context.Context) attemptResult {
	e.lock.Lock()
	e.lostReason = "" // before the attempt: the watch may be faster than the response
	e.lock.Unlock()
	attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.RenewDeadline)
	stop := context.AfterFunc(ctx, func() {
		timing.Sleep(attempt, e.clock, time.Second)
		cancel()
	})
	result := e.attemptLease(attempt, false)
	stop()
	cancel()
	if result.held && ctx.Err() == nil {
		e.recordEvent("became leader")
		return result
	}
	e.lease.stopHolding()
	if ctx.Err() != nil && (result.held || result.unknown) {
		e.releaseLease(context.WithoutCancel(ctx), time.Time{})
	}
	result.held = false
	return result
}

// lastAttempt is the last attempt of a standby to acquire the lease. The zero value is none.
type lastAttempt struct {
	at      time.Time     // end of the attempt
	version string        // of the Lease on which the attempt was decided
	pause   time.Duration // before the next attempt on the same version
}

// nextAttempt returns the time of the next attempt of a standby: at once before the first attempt,
// when the lease becomes free, after the pause if the last attempt failed on a free lease, and at the
// latest poll after the last attempt, because the watch may be broken or late.
func nextAttempt(o observation, identity string, minDuration time.Duration, last lastAttempt, poll time.Duration) time.Time {
	retry := last.at.Add(last.pause)
	if o.since.IsZero() || last.at.IsZero() {
		return retry
	}
	free, _ := o.freeAt(identity, minDuration)
	if o.version == last.version && !free.After(last.at) {
		free = retry
	}
	return timing.Earlier(free, timing.Later(last.at.Add(poll), retry))
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

// recordHolder logs a new holder. Another holder is another candidate.
func (e *Elector) recordHolder(ctx context.Context, holder, before string) {
	if holder == "" || holder == e.cfg.Identity {
		return
	}
	e.lock.Lock()
	e.stepDownIgnoredUntil = time.Time{}
	e.lock.Unlock()
	if holder != before {
		klog.FromContext(ctx).Info("Standing by for another holder", "lease", e.lease, "holder", holder)
	}
}

// attemptLease makes one attempt to acquire or renew the lease and records the result.
func (e *Elector) attemptLease(ctx context.Context, renewing bool) attemptResult {
	result := e.lease.acquireOrRenew(ctx, renewing)
	logger := klog.FromContext(ctx)
	switch {
	case result.err == nil || errors.Is(ctx.Err(), context.Canceled):
	case apierrors.IsConflict(result.err) || apierrors.IsAlreadyExists(result.err):
		logger.V(2).Info("Another process changed the lease", "lease", e.lease, "err", result.err)
	default:
		logger.Error(result.err, "Failed to acquire or renew the lease", "lease", e.lease)
	}
	if result.held {
		e.deps.Metrics.lease.Set(result.written.Truncate(time.Second).Seconds())
		e.confirmRenewal(ctx, result.sent, result.confirmed)
	}
	return result
}

// confirmRenewal computes the deadlines of later writes from a renewal of the given duration.
func (e *Elector) confirmRenewal(ctx context.Context, sent time.Time, duration time.Duration) {
	limits := e.cfg.limitsAfter(sent, duration)
	e.lock.Lock()
	before := e.confirmedDuration
	e.renewedAt, e.confirmedDuration = sent, duration
	e.fence.setLimits(limits)
	e.lock.Unlock()
	if before != 0 && before != duration {
		klog.FromContext(ctx).Info("Lease duration changed, it is extended while writes are slow",
			"from", before, "to", duration, "writeTimeout", limits.maxDuration)
	}
}

// leaseDurations returns the arguments of the next renewal, see renewalDurations.
func (e *Elector) leaseDurations(ctx context.Context) (renewal, confirmed time.Duration) {
	slow, short := e.fence.hasSlowWrites(), e.cfg.LeaseDuration
	e.lock.Lock()
	renewedAt, confirmed := e.renewedAt, e.confirmedDuration
	e.lock.Unlock()
	if !slow && confirmed > short { // before unknownUntil, which must cover later writes
		e.confirmRenewal(ctx, renewedAt, short)
	}
	return renewalDurations(slow, e.fence.unknownUntil(), e.clock.Now(), short, e.cfg.extendedLease())
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
	case err != nil:
		logger.Error(err, "Failed to release the lease", "lease", e.lease)
	case !expires.IsZero():
		logger.Info("Not releasing the lease, writes have unknown outcomes",
			"lease", e.lease, "expiresIn", expires.Sub(begun).Round(time.Millisecond))
	default:
		logger.Info("Released the lease", "lease", e.lease, "duration", e.clock.Since(begun).Round(time.Millisecond))
	}
}

// loseLease cancels the requests of the running term, and keeps the first reason.
func (e *Elector) loseLease(reason string) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.lostReason = cmp.Or(e.lostReason, reason)
	e.fence.abortTerm(reason)
	timing.Signal(e.wake)
}

// currentLostReason returns an empty string while the lease is held.
func (e *Elector) currentLostReason() string {
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
	if !e.leading || e.lease == nil {
		return 0
	}
	return e.clock.Since(e.renewedAt)
}

// healthTolerance is the time after which an overdue leader is unhealthy, as in
// kube-controller-manager v1.37.
const healthTolerance = 20 * time.Second

// Healthy returns an error while controllers run and the last renewal is older than 20 s plus the lease
// duration or the shutdown timeout. An outage of the API server ends terms, so Healthy does not depend on
// the API server.
func (e *Elector) Healthy() error {
	if age := e.renewalAge(); age > max(e.cfg.LeaseDuration, e.cfg.ShutdownTimeout)+healthTolerance {
		return fmt.Errorf("controllers run and the lease %s was last renewed %v ago", e.cfg.Name, age.Round(time.Second))
	}
	return nil
}
