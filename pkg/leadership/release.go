package leadership

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errNotOurs is the outcome of a release that came too late: the Lease is gone, or somebody else's.
var errNotOurs = errors.New("the lease is not ours any more")

const (
	// releaseTimeout is for how long a release is tried. It happens when control planes are drained, so that storage elects a new leader or
	// an API server goes away at the same time: that takes a second or two.
	releaseTimeout = 5 * time.Second
	// releasePause lies between tries.
	releasePause = 250 * time.Millisecond
)

// leave gives the Lease away: at once if hold is not positive, otherwise it stays ours and expires after hold, rounded up to seconds. It
// returns errNotOurs if the Lease is not ours any more. It reads first, and again after a conflict, which a renewal in flight can cause,
// and after a pause when it fails otherwise, until ctx ends.
func (l *leaseLock) leave(ctx context.Context, hold func() time.Duration, pause func(context.Context)) error {
	var last error
	for ctx.Err() == nil {
		last = l.leaveOnce(ctx, hold())
		switch {
		case last == nil || errors.Is(last, errNotOurs) || apierrors.IsForbidden(last) || apierrors.IsUnauthorized(last):
			return last
		case apierrors.IsConflict(last):
			continue
		}
		pause(ctx)
	}
	return errors.Join(last, ctx.Err())
}

func (l *leaseLock) leaveOnce(ctx context.Context, hold time.Duration) error {
	lease, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errNotOurs
	}
	if err != nil {
		return fmt.Errorf("read the lease to release it: %w", err)
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if record.HolderIdentity != l.identity {
		return errNotOurs
	}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(last(*record, hold, metav1.NewTime(l.clock.Now())))
	written, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the lease to release it: %w", err)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.lease, l.seen = written, l.seen.read(written, l.clock.Now())
	return nil
}

// last is the last record of a holder, who has held the lease by the given one.
func last(record resourcelock.LeaderElectionRecord, hold time.Duration, now metav1.Time) *resourcelock.LeaderElectionRecord {
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
