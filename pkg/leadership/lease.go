package leadership

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
	"minikcm/pkg/outcome"
)

// leaseClient acquires, renews and releases the Lease for one identity. It observes the Lease by its
// own requests and by watch events, and detects a loss by either.
type leaseClient struct {
	client                    coordinationv1client.LeaseInterface
	namespace, name, identity string
	minDuration               time.Duration // see observation.freeAt
	maxDuration               time.Duration // see observation.withoutLease
	clock                     clock.Clock
	expectVersion             func(string)
	reportLoss                func(reason string) // called with the lock: no other term can begin meanwhile
	// durations returns the duration of a renewal, and the part of the duration that deadlines of writes may use.
	durations func(context.Context) (renewal, confirmed time.Duration)

	lock    sync.Mutex
	stored  *coordinationv1.Lease // by the last own request; the next write carries its resourceVersion
	seen    observation
	holding bool // since the last own write, no observation names another holder
}

// attemptResult is the result of one attempt to acquire or renew the Lease.
type attemptResult struct {
	held bool
	err  error // of the read or write; nil if another process holds the Lease

	// If held:
	sent               time.Time // of the write
	written, confirmed time.Duration
	cause              Cause
	freeSince          time.Time

	sentGet bool   // the attempt needed a GET
	unknown bool   // a write has an unknown outcome
	version string // of the Lease on which the attempt was decided; may be ""
}

// acquireOrRenew makes one attempt to acquire the Lease, or to renew the Lease if this process still
// is the holder.
func (l *leaseClient) acquireOrRenew(ctx context.Context, renewing bool) attemptResult {
	// 1. The holder updates the stored Lease with one request.
	var updateErr error
	if renewing {
		stored, holding := l.storedLease()
		if !holding { // the loss was reported before
			return attemptResult{}
		}
		renewed := l.writeHolder(ctx, stored)
		if updateErr = renewed.err; updateErr == nil {
			return renewed
		}
		klog.FromContext(ctx).V(2).Info("Reading the lease before the renewal", "lease", l, "err", updateErr)
	}
	// 2. A standby, and a holder whose update failed, read the Lease.
	seen := l.latestObservation().version
	lease, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case outcome.IsNotFound(err, l.name):
		lease = nil
	case err != nil:
		return attemptResult{err: errors.Join(updateErr, fmt.Errorf("read the lease: %w", err)), version: seen}
	}
	// 3. The Lease must be free, or held by this process.
	found, mayWrite := l.evaluateRead(lease, seen, renewing)
	if !mayWrite {
		return found
	}
	// 4. The write carries the version of the read. It fails with a conflict if another process was
	// faster.
	written := l.writeHolder(ctx, lease)
	written.cause, written.freeSince, written.version, written.sentGet = found.cause, found.freeSince, found.version, true
	return written
}

// storedLease returns the Lease as of the last own request.
func (l *leaseClient) storedLease() (lease *coordinationv1.Lease, holding bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.stored, l.holding
}

// evaluateRead records the response to a GET, nil for no Lease, and decides whether this process may
// write the Lease. before is the version of the observation when the GET was sent.
func (l *leaseClient) evaluateRead(lease *coordinationv1.Lease, before string, renewing bool) (result attemptResult, mayWrite bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	now, version := l.clock.Now(), l.seen.version
	switch {
	case lease == nil:
		l.seen = l.seen.withoutLease(now, l.maxDuration)
	case l.seen.version != before: // the watch may have shown a later change before the response
		l.seen = l.seen.withEvent(lease, now)
	default:
		l.seen = l.seen.withResponse(lease, now)
	}
	if lease != nil {
		l.stored, version = lease, lease.ResourceVersion
		l.expectVersion(version)
	}
	result = attemptResult{version: version, sentGet: true}
	if l.checkHolderLocked(); renewing {
		return result, l.holding
	}
	result.freeSince, result.cause = l.seen.freeAt(l.identity, l.minDuration)
	return result, !now.Before(result.freeSince)
}

// writeHolder makes this process the holder of the previous Lease, or creates the Lease if previous
// is nil.
func (l *leaseClient) writeHolder(ctx context.Context, previous *coordinationv1.Lease) attemptResult {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name}}
	send := func() (*coordinationv1.Lease, error) { return l.client.Create(ctx, lease, metav1.CreateOptions{}) }
	if previous != nil {
		lease = previous.DeepCopy()
		send = func() (*coordinationv1.Lease, error) { return l.client.Update(ctx, lease, metav1.UpdateOptions{}) }
	}
	renewal, confirmed := l.durations(ctx)
	result := attemptResult{sent: l.clock.Now(), written: renewal, confirmed: confirmed}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(holderRecord(previous, l.identity, renewal, metav1.NewTime(result.sent)))
	stored, err := send()
	if err != nil {
		return attemptResult{err: fmt.Errorf("write the lease: %w", err), unknown: outcome.FromError(err) == outcome.Unknown}
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.clock.Now()
	l.stored = stored
	if l.seen.exists { // the watch may have shown a successor before the response
		l.seen = l.seen.withEvent(stored, now)
	} else {
		l.seen = l.seen.withResponse(stored, now)
	}
	l.expectVersion(stored.ResourceVersion)
	l.holding = true
	l.checkHolderLocked()
	result.held = l.holding
	return result
}

// holderRecord returns the record of a holder in place of the record of the previous Lease, which may be nil.
func holderRecord(previous *coordinationv1.Lease, identity string, duration time.Duration, now metav1.Time) *resourcelock.LeaderElectionRecord {
	record := &resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: int(duration / time.Second),
		AcquireTime: now, RenewTime: now}
	if previous == nil {
		return record
	}
	before := resourcelock.LeaseSpecToLeaderElectionRecord(&previous.Spec)
	if before.HolderIdentity == identity {
		record.AcquireTime, record.LeaderTransitions = before.AcquireTime, before.LeaderTransitions
	} else {
		// The API server rejects an overflow.
		record.LeaderTransitions = min(before.LeaderTransitions, math.MaxInt32-1) + 1
	}
	return record
}

// observeEvent records a watch event; nil is a deletion.
func (l *leaseClient) observeEvent(lease *coordinationv1.Lease) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if lease == nil {
		l.seen = l.seen.withoutLease(l.clock.Now(), l.maxDuration)
		return
	}
	l.seen = l.seen.withEvent(lease, l.clock.Now())
	l.checkHolderLocked()
}

// checkHolderLocked reports a loss if the newest record names another holder or none. A deleted Lease is no
// loss: the deletion names no successor, and the next renewal creates the Lease again.
func (l *leaseClient) checkHolderLocked() {
	if holder := l.seen.record.HolderIdentity; l.holding && holder != l.identity {
		l.holding = false
		l.reportLoss(fmt.Sprintf("the holder of the lease is %q", holder))
	}
}

// stopHolding makes the next attempt that of a standby.
func (l *leaseClient) stopHolding() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.holding = false
}

// String returns the namespace and name of the Lease.
func (l *leaseClient) String() string { return l.namespace + "/" + l.name }

func (l *leaseClient) latestObservation() observation {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.seen
}

// errNotOurs is the error of a release after the Lease was deleted or acquired by another process.
var errNotOurs = errors.New("this process does not hold the lease")

const (
	// releaseTimeout bounds the attempts to release. While a control plane is drained, etcd elections
	// and restarts of API servers take a second or two.
	releaseTimeout = 5 * time.Second
	releasePause   = 250 * time.Millisecond
)

// release writes the last record of this process. If expires is zero, the record names no holder.
// Otherwise the Lease expires then, rounded up to whole seconds. Each attempt reads the Lease first. A
// conflict, as by a renewal in flight, is repeated at once, other failures after releasePause, until ctx
// ends.
func (l *leaseClient) release(ctx context.Context, expires time.Time) error {
	for {
		err := l.releaseOnce(ctx, expires)
		if err == nil || errors.Is(err, errNotOurs) || ctx.Err() != nil {
			return err
		}
		if !apierrors.IsConflict(err) && !timing.Sleep(ctx, l.clock, releasePause) {
			return err
		}
	}
}

func (l *leaseClient) releaseOnce(ctx context.Context, expires time.Time) error {
	lease, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	if outcome.IsNotFound(err, l.name) {
		return errNotOurs
	}
	if err != nil {
		return fmt.Errorf("read the lease to release it: %w", err)
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if record.HolderIdentity != l.identity {
		return errNotOurs
	}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(releaseRecord(*record, expires, l.clock.Now()))
	written, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the lease to release it: %w", err)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.stored, l.seen = written, l.seen.withResponse(written, l.clock.Now())
	return nil
}

// releaseRecord returns the last record of a holder, in place of record.
func releaseRecord(record resourcelock.LeaderElectionRecord, expires, now time.Time) *resourcelock.LeaderElectionRecord {
	if expires.IsZero() {
		return &resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, // as client-go: for readers that ignore the empty holder
			LeaderTransitions:    record.LeaderTransitions,
			AcquireTime:          metav1.NewTime(now),
			RenewTime:            metav1.NewTime(now),
		}
	}
	record.RenewTime = metav1.NewTime(now)
	record.LeaseDurationSeconds = max(1, int(math.Ceil(expires.Sub(now).Seconds())))
	return &record
}

// Cause is the way in which the lease became free for a term.
type Cause string

// The causes of a takeover.
const (
	CauseInitial    Cause = "initial"    // there was no lease, or election is off
	CauseReleased   Cause = "released"   // the holder released the lease
	CauseExpired    Cause = "expired"    // the holder did not renew the lease
	CauseReacquired Cause = "reacquired" // this process still was the holder when its term ended
)

// observation is the knowledge of this process about the Lease, with times of the local clock. It is a
// value: each event or response gives a new observation.
type observation struct {
	exists bool
	// record is the last record of the Lease. It outlives the Lease: the deletion of a Lease does not
	// stop its holder.
	record          resourcelock.LeaderElectionRecord
	renewedByHolder bool          // the renew time differs from that in the previous record of the same holder
	lastDuration    time.Duration // in the last record with a holder; 0 for none
	version         string        // newest resourceVersion
	since           time.Time     // first observation of record, or of the missing Lease; zero if there was none
}

// withEvent adds a watch event. An event older than the observation changes nothing: a delayed watch
// must not undo a response.
func (o observation) withEvent(lease *coordinationv1.Lease, now time.Time) observation {
	if o.version != "" && rv.AtLeast(o.version, lease.ResourceVersion) {
		return o
	}
	return o.withResponse(lease, now)
}

// withResponse adds the response to an own request. Responses come from etcd, so they count even if
// the version is lower than before: after a restore from a backup all versions are lower for a while.
func (o observation) withResponse(lease *coordinationv1.Lease, now time.Time) observation {
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if !o.exists || !equality.Semantic.DeepEqual(o.record, *record) {
		o.since = now
		o.renewedByHolder = record.HolderIdentity == o.record.HolderIdentity && !sameTime(record.RenewTime, o.record.RenewTime)
	}
	if record.HolderIdentity != "" {
		o.lastDuration = time.Duration(record.LeaseDurationSeconds) * time.Second
	}
	o.exists, o.record, o.version = true, *record, lease.ResourceVersion
	return o
}

// withoutLease adds a deletion or a GET that found no Lease. A duration that the holder has not renewed may have been
// written by hand. It counts for at most maxDuration: the deletion removes it.
func (o observation) withoutLease(now time.Time, maxDuration time.Duration) observation {
	if o.since.IsZero() {
		o.since = now
	}
	o.exists = false
	if !o.renewedByHolder {
		o.record.LeaseDurationSeconds = min(o.record.LeaseDurationSeconds, int(maxDuration/time.Second))
		o.lastDuration = min(o.lastDuration, maxDuration)
	}
	return o
}

// freeAt returns the moment from which identity may try to acquire the lease, if o is not zero.
//
// A deleted Lease is not free before its last record expires: the holder still works, and creates the
// Lease again at its next renewal. The same is true for a record whose holder another process has
// removed. minDuration is the minimal duration of a record that its holder has not written: a shorter
// duration was written by hand, and the holder may not have noticed.
func (o observation) freeAt(identity string, minDuration time.Duration) (time.Time, Cause) {
	switch {
	case o.record.HolderIdentity == identity:
		return o.since, CauseReacquired
	case o.record == resourcelock.LeaderElectionRecord{} && o.lastDuration == 0: // only created
		return o.since, CauseInitial
	case o.record.HolderIdentity == "" && isReleased(o.record):
		if !o.exists {
			return o.since, CauseInitial
		}
		return o.since, CauseReleased
	case o.record.HolderIdentity == "":
		return o.since.Add(max(minDuration, o.lastDuration)), CauseExpired
	}
	duration := time.Duration(o.record.LeaseDurationSeconds) * time.Second
	if !o.renewedByHolder {
		duration = max(duration, minDuration)
	}
	return o.since.Add(duration), CauseExpired
}

// isReleased reports whether a record without a holder was written by a holder, client-go's or this
// package's: the duration is a second and both times are the same. A record whose holder another
// process removed keeps the times of the last renewal.
func isReleased(record resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == 1 && sameTime(record.AcquireTime, record.RenewTime)
}

func sameTime(a, b metav1.Time) bool { return a.UnixMicro() == b.UnixMicro() }
