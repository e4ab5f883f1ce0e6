package leadership

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/pkg/outcome"
)

// leaseClient takes, renews and gives away the Lease for one identity. It remembers what it saw of the Lease, fed by its own requests and
// by watch events, and tells as soon as either shows that the Lease is not ours any more.
type leaseClient struct {
	client                    coordinationv1client.LeaseInterface
	namespace, name, identity string
	minDuration               time.Duration // see observation.free
	clock                     clock.PassiveClock

	lock    sync.Mutex
	stored  *coordinationv1.Lease // as of our last own request; its version goes with the next write
	seen    observation
	holding bool // our last write made us the holder, and nothing since took that away
	watch   watchLag
}

// outcome is what came of one attempt at the Lease.
type attemptResult struct {
	held       bool   // the Lease is ours
	lostReason string // why it is not ours any more; "" if it is, or was not before
	err        error  // why there was no write, or why it failed; nil if the Lease is somebody else's

	sent              time.Time     // held: when the write was sent
	written, reliable time.Duration // held: for how long it holds, and on how much of that writes may rely
	cause             Cause         // held: how the Lease was free for us
	freeSince         time.Time     // held: since when
	read              bool          // it took a GET
	unknown           bool          // not held: a write may have been done all the same
	version           string        // of the Lease that was judged; "" if none is known
}

// attempt makes one try to take the Lease, or to renew it; one that is not ours any more is not renewed. duration is asked before each
// write for how long it is to hold, and on how much of that writes may rely.
func (l *leaseClient) acquireOrRenew(ctx context.Context, renewing bool, duration func() (written, rely time.Duration)) attemptResult {
	// 1. The holder writes over what it knows: one request.
	var refused error
	if renewing {
		stored, holding := l.storedLease()
		if !holding { // whoever found out has said so
			return attemptResult{}
		}
		o := l.writeHolder(ctx, stored, duration)
		if o.err == nil {
			return o
		}
		refused = o.err
		klog.FromContext(ctx).V(2).Info("The lease is read before it is renewed", "lease", l, "err", refused)
	}
	// 2. Everybody else, and a holder whose write failed, reads the Lease.
	lease, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return attemptResult{err: errors.Join(refused, fmt.Errorf("read the lease: %w", err)), version: l.latestObservation().version}
	}
	if err != nil {
		lease = nil
	}
	// 3. It has to be ours, or free.
	o, ok := l.evaluateRead(lease, renewing)
	if !ok {
		return o
	}
	// 4. The write carries the version that was read: if somebody else came first, it is refused.
	w := l.writeHolder(ctx, lease, duration)
	w.cause, w.freeSince, w.version, w.read = o.cause, o.freeSince, o.version, true
	return w
}

// current returns the Lease as of our last request, and whether we hold it.
func (l *leaseClient) storedLease() (*coordinationv1.Lease, bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.stored, l.holding
}

// judge takes in what a GET showed, nil if there is no Lease, and says whether we may write it.
func (l *leaseClient) evaluateRead(lease *coordinationv1.Lease, renewing bool) (o attemptResult, ok bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.clock.Now()
	if lease == nil {
		l.seen = l.seen.withoutLease(now)
	} else {
		l.stored = lease
		l.seen = l.seen.withResponse(lease, now)
		l.watch = l.watch.sawDirect(lease.ResourceVersion, now)
	}
	o = attemptResult{version: l.seen.version, read: true, lostReason: l.checkHolder()}
	if renewing { // what took it away may have been seen before, too
		return o, l.holding
	}
	o.freeSince, o.cause = l.seen.freeAt(l.identity, l.minDuration)
	return o, !now.Before(o.freeSince)
}

// write makes us the holder of the Lease as it was read, or of a new one if that is nil.
func (l *leaseClient) writeHolder(ctx context.Context, read *coordinationv1.Lease, duration func() (written, rely time.Duration)) attemptResult {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name}}
	send := func() (*coordinationv1.Lease, error) { return l.client.Create(ctx, lease, metav1.CreateOptions{}) }
	if read != nil {
		lease = read.DeepCopy()
		send = func() (*coordinationv1.Lease, error) { return l.client.Update(ctx, lease, metav1.UpdateOptions{}) }
	}
	written, rely := duration()
	o := attemptResult{sent: l.clock.Now(), written: written, reliable: rely}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(holderRecord(read, l.identity, o.written, metav1.NewTime(o.sent)))
	answered, err := send()
	if err != nil {
		return attemptResult{err: fmt.Errorf("write the lease: %w", err), unknown: outcome.FromError(err) == outcome.Unknown}
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.clock.Now()
	l.stored = answered
	if l.seen.exists { // the watch may have shown a successor before the answer came
		l.seen = l.seen.withEvent(answered, now)
	} else {
		l.seen = l.seen.withResponse(answered, now)
	}
	l.watch = l.watch.sawDirect(answered.ResourceVersion, now)
	l.holding = true
	o.lostReason = l.checkHolder()
	o.held = l.holding
	return o
}

// holderRecord is what a holder writes over the Lease that was read; nil if there was none.
func holderRecord(read *coordinationv1.Lease, identity string, duration time.Duration, now metav1.Time) *resourcelock.LeaderElectionRecord {
	record := &resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: int(duration / time.Second),
		AcquireTime: now, RenewTime: now}
	if read == nil {
		return record
	}
	before := resourcelock.LeaseSpecToLeaderElectionRecord(&read.Spec)
	if before.HolderIdentity == identity {
		record.AcquireTime, record.LeaderTransitions = before.AcquireTime, before.LeaderTransitions
	} else {
		record.LeaderTransitions = before.LeaderTransitions + 1
	}
	return record
}

// observe takes in what the watch says; nil means deleted. It returns why the Lease is not ours any more, "" if nothing changed about that.
func (l *leaseClient) observeEvent(lease *coordinationv1.Lease) (lost string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.clock.Now()
	if lease == nil {
		l.seen = l.seen.withoutLease(now)
		return ""
	}
	l.watch = l.watch.sawWatched(lease.ResourceVersion)
	l.seen = l.seen.withEvent(lease, now)
	return l.checkHolder()
}

// check ends our holding if the newest record names another holder, or none, and says so once. The lock is held.
// A deleted Lease leaves our record the newest: it names no successor, and our next renewal puts it back.
func (l *leaseClient) checkHolder() (lost string) {
	if !l.holding || l.seen.record.HolderIdentity == l.identity {
		return ""
	}
	l.holding = false
	if holder := l.seen.record.HolderIdentity; holder != "" {
		return "the lease is held by " + holder
	}
	return "the lease was released by somebody else"
}

// resign forgets that we hold the Lease; the next attempt judges it as a standby does.
func (l *leaseClient) stopHolding() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.holding = false
}

// String is the namespace and name of the Lease, for logs.
func (l *leaseClient) String() string { return l.namespace + "/" + l.name }

// observed returns what is known of the Lease.
func (l *leaseClient) latestObservation() observation {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.seen
}

// lag says how far the watch is behind our own requests.
func (l *leaseClient) lag() watchLag {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.watch
}

// reopened starts the count anew: what counts is what a new watch delivers.
func (l *leaseClient) reopened() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.watch.ahead = 0
}

// errNotOurs is the outcome of a release that came too late: the Lease is gone, or somebody else's.
var errNotOurs = errors.New("the lease is not ours any more")

const (
	// releaseTimeout is for how long a release is tried. It happens when control planes are drained, so that storage elects a new leader or
	// an API server goes away at the same time: that takes a second or two.
	releaseTimeout = 5 * time.Second
	// releasePause lies between tries.
	releasePause = 250 * time.Millisecond
	// releaseRefusals in all end the tries: one API server behind a load balancer may refuse what others grant while it starts or ends.
	releaseRefusals = 3
)

// leave writes our last record. If hold returns 0 or less, the Lease is released: the record names no holder. Otherwise we stay its holder, and it expires
// after hold, rounded up to whole seconds. Each try reads the Lease first. A conflict, which a renewal in flight can cause, is tried again at once, any
// other failure after pause, until ctx ends or releaseRefusals answers were Forbidden or Unauthorized. The error is errNotOurs if the Lease is not ours any more.
func (l *leaseClient) release(ctx context.Context, hold func() time.Duration, pause func(context.Context)) error {
	var last error
	refusals := 0
	for ctx.Err() == nil {
		last = l.releaseOnce(ctx, hold())
		switch {
		case last == nil || errors.Is(last, errNotOurs):
			return last
		case apierrors.IsConflict(last):
			continue
		case apierrors.IsForbidden(last) || apierrors.IsUnauthorized(last):
			if refusals++; refusals == releaseRefusals {
				return last
			}
		}
		pause(ctx)
	}
	return errors.Join(last, ctx.Err())
}

func (l *leaseClient) releaseOnce(ctx context.Context, hold time.Duration) error {
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
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(releaseRecord(*record, hold, metav1.NewTime(l.clock.Now())))
	written, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the lease to release it: %w", err)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.stored, l.seen = written, l.seen.withResponse(written, l.clock.Now())
	return nil
}

// lastRecord is the last that a holder writes, over the given one.
func releaseRecord(record resourcelock.LeaderElectionRecord, hold time.Duration, now metav1.Time) *resourcelock.LeaderElectionRecord {
	if hold <= 0 {
		return &resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: 1, // as client-go: a reader that ignores the empty holder waits no longer
			LeaderTransitions:    record.LeaderTransitions,
			AcquireTime:          now,
			RenewTime:            now,
		}
	}
	record.RenewTime, record.LeaseDurationSeconds = now, int(math.Ceil(hold.Seconds()))
	return &record
}
