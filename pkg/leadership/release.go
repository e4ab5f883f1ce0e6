package leadership

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// errNotOurs is the outcome of a release that came too late: the Lease is gone, or somebody else's.
var errNotOurs = errors.New("the lease is not ours any more")

// release empties the holder of the Lease, or returns errNotOurs if it is not still ours. It reads first, and again after a conflict
// or another error, which a renewal in flight can cause, until ctx ends; pause lies between tries that
// failed otherwise than by conflict.
func (l *leaseLock) release(ctx context.Context, pause func(context.Context)) error {
	var last error
	for tries := 0; ctx.Err() == nil && tries < releaseTries; {
		last = l.releaseOnce(ctx)
		switch {
		case last == nil || errors.Is(last, errNotOurs) || apierrors.IsForbidden(last) || apierrors.IsUnauthorized(last):
			return last
		case apierrors.IsConflict(last):
			continue
		}
		tries++
		pause(ctx)
	}
	return errors.Join(last, ctx.Err())
}

// releaseTries bounds the tries of a release that fail otherwise than by conflict: an API server that
// does not answer must not hold up a shutdown until the lease has expired anyway.
const releaseTries = 3

func (l *leaseLock) releaseOnce(ctx context.Context) error {
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
	now := metav1.NewTime(l.clock.Now())
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, // as client-go: a reader that ignores the empty holder waits no longer
		LeaderTransitions:    record.LeaderTransitions,
		AcquireTime:          now,
		RenewTime:            now,
	})
	released, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("empty the holder of the lease: %w", err)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.lease, l.seen = released, l.seen.read(released, l.clock.Now())
	return nil
}
