package leadership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"minikcm/pkg/answer"
)

// leaseLock is the lock client-go's elector turns. Beyond storing records it
//
//   - asks for how long to take or renew the lease (hooks.duration), and tells when each successful write of ours was sent (hooks.renewed);
//   - remembers what it saw of the Lease, fed by its own requests and by watch events, and shows an expired
//     record as free. Taking it is safe: the PUT carries the resourceVersion of the GET that confirmed it;
//   - tells at once when, while we lead, the Lease is no longer ours (hooks.lost);
//   - tells when a try to take the lease has failed (hooks.failed).
//
// Hooks must not block and, but for hooks.duration, are called with the lock held: they must not call back.
type leaseLock struct {
	client                    coordinationv1client.LeaseInterface
	namespace, name, identity string
	least                     time.Duration // see observation.free
	clock                     clock.PassiveClock
	recorder                  resourcelock.EventRecorder // nil: no events
	hooks                     lockHooks

	lock    sync.Mutex
	lease   *coordinationv1.Lease // as of our last own request; its version goes with the next write
	seen    observation
	leading bool      // our last write made us the holder, and nothing since took that away
	won     Cause     // how the lease was free when we last tried
	freed   time.Time // since when
	tried   string    // version of the Lease our last try judged
	unsure  bool      // the outcome of our last try to become the holder is not known
	watch   watchLag
}

type lockHooks struct {
	// duration says for how long the lease is to be taken or renewed, and on how much of that writes may rely.
	duration func() (write, rely time.Duration)
	renewed  func(sent time.Time, written, rely time.Duration) // we hold the lease by a write sent then
	lost     func(reason string)                               // leading, and the lease is not ours any more
	failed   func()                                            // not leading, and a try came to its end
}

// Get returns the record for client-go's elector to judge: an expired one with an empty holder, a missing
// one whose holder may still work as if it were there.
func (l *leaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.clock.Now()
	defer func() { l.tried = l.seen.version }()
	switch {
	case err == nil:
		l.lease = lease
		l.seen = l.seen.read(lease, now)
		l.watch = l.watch.sawDirect(lease.ResourceVersion, now)
	case apierrors.IsNotFound(err):
		l.seen = l.seen.gone(now)
	default:
		l.fail()
		return nil, nil, err
	}
	record := l.seen.record
	if l.leading {
		l.judge()
		return shown(record, err)
	}
	at, cause := l.seen.free(l.identity, l.least)
	if now.Before(at) {
		l.fail()
		// One without a holder or a duration is over for client-go.
		record.HolderIdentity = cmp.Or(record.HolderIdentity, "unknown")
		record.LeaseDurationSeconds = max(1, record.LeaseDurationSeconds)
		return shown(record, nil)
	}
	l.won, l.freed = cause, at
	if record.HolderIdentity != l.identity {
		record.HolderIdentity = ""
	}
	return shown(record, err)
}

// shown is the answer of Get. The raw form is what client-go compares records by.
func shown(record resourcelock.LeaderElectionRecord, err error) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the lease record: %w", err)
	}
	return &record, raw, nil
}

// Create makes the Lease with us as its holder.
func (l *leaseLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	written, rely := l.hooks.duration()
	record.LeaseDurationSeconds = int(written / time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: l.name},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}
	sent := l.clock.Now()
	created, err := l.client.Create(ctx, lease, metav1.CreateOptions{})
	return l.wrote(created, sent, written, rely, err)
}

// Update writes the record, which names us, over the Lease as last seen by a request of ours.
func (l *leaseLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.lock.Lock()
	if l.lease == nil {
		l.lock.Unlock()
		return errors.New("the lease was neither read nor created before it is updated")
	}
	lease := l.lease.DeepCopy()
	l.lock.Unlock()
	written, rely := l.hooks.duration()
	record.LeaseDurationSeconds = int(written / time.Second)
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	sent := l.clock.Now()
	updated, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	return l.wrote(updated, sent, written, rely, err)
}

// wrote takes note of the outcome of a write that makes or keeps us the holder.
func (l *leaseLock) wrote(lease *coordinationv1.Lease, sent time.Time, written, rely time.Duration, err error) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if err != nil {
		l.unsure = answer.Of(err) == answer.Unknown
		l.fail()
		return err
	}
	now := l.clock.Now()
	l.lease = lease
	l.seen = l.seen.read(lease, now)
	l.watch = l.watch.sawDirect(lease.ResourceVersion, now)
	l.leading = true
	l.hooks.renewed(sent, written, rely)
	l.judge() // the watch may have shown a successor before the answer came
	return nil
}

// observe takes in what the watch says; nil means deleted.
func (l *leaseLock) observe(lease *coordinationv1.Lease) {
	l.lock.Lock()
	defer l.lock.Unlock()
	now := l.clock.Now()
	if lease == nil {
		l.seen = l.seen.gone(now)
		return
	}
	l.watch = l.watch.sawWatched(lease.ResourceVersion)
	l.seen = l.seen.saw(lease, now)
	if l.leading {
		l.judge()
	}
}

// judge ends our leading if the newest record names another holder, or none. The lock is held.
// A deleted Lease leaves our record the newest: it names no successor, and our next renewal puts it back.
func (l *leaseLock) judge() {
	if !l.leading || l.seen.record.HolderIdentity == l.identity {
		return
	}
	l.leading = false
	if holder := l.seen.record.HolderIdentity; holder != "" {
		l.hooks.lost("the lease is held by " + holder)
	} else {
		l.hooks.lost("the lease was released by somebody else")
	}
}

// fail tells that a try has ended. The lock is held.
func (l *leaseLock) fail() {
	if !l.leading {
		l.hooks.failed()
	}
}

// resign forgets that we lead; the next Get judges the Lease as a standby does.
func (l *leaseLock) resign() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.leading, l.unsure = false, false
}

// mayHold says whether the lease may be ours by a write of ours.
func (l *leaseLock) mayHold() bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.leading || l.unsure
}

// Identity implements resourcelock.Interface.
func (l *leaseLock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *leaseLock) Describe() string { return l.namespace + "/" + l.name }

// observed returns what is known of the Lease.
func (l *leaseLock) observed() observation {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.seen
}

// judged returns the version of the Lease our last try found.
func (l *leaseLock) judged() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.tried
}

// takenFrom says how the lease was free when it was taken, and since when.
func (l *leaseLock) takenFrom() (Cause, time.Time) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.won, l.freed
}

// lag says how far the watch is behind our own requests.
func (l *leaseLock) lag() watchLag {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.watch
}

// reopened starts the count anew: what counts is what a new watch delivers.
func (l *leaseLock) reopened() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.watch.ahead = 0
}
