package leadership

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// In all of these a leader is at work when it happens, and at the end one writer at a time is proven from the audit log.

func TestSIGTERMHandsOver(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	signalled := time.Now()
	if err := leader.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	t.Logf("first pod of the new leader %v after SIGTERM", createdBy(t, standby, signalled, 10*time.Second))
	if code, err := leader.Wait(10 * time.Second); err != nil || code != 0 {
		t.Errorf("old leader ended with %d, %v; want 0", code, err)
	}
	load.settles(t)
	checkOneWriter(t, leader.user, standby.user)
}

func TestSIGKILLIsSurvivedWhenTheLeaseExpires(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	killed := time.Now()
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("first pod of the new leader %v after SIGKILL, lease %v", createdBy(t, standby, killed, 2*leaseDuration), leaseDuration)
	load.settles(t)
	checkOneWriter(t, leader.user, standby.user)
}

func TestStoppedLeaderDoesNotWriteWhenItGoesOn(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	if err := leader.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	createdBy(t, standby, time.Now(), 2*leaseDuration)
	controlplane.Consistently(t, leaseDuration, func(context.Context) error { return nil }) // two lease durations in all
	if err := leader.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	leader.WaitForLog(t, "Term ends")
	if err := standby.Signal(syscall.SIGTERM); err != nil { // it is a standby again, not a zombie
		t.Fatal(err)
	}
	createdBy(t, leader, time.Now(), 10*time.Second)
	load.settles(t)
	checkOneWriter(t, leader.user, standby.user)
}

func TestPartitionedLeaderStopsAndComesBackAsStandby(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	cut := time.Now()
	if err := leader.proxy.Outage(faults.Partition); err != nil {
		t.Fatal(err)
	}
	createdBy(t, standby, cut, 3*leaseDuration)
	if err := leader.proxy.Restore(); err != nil {
		t.Fatal(err)
	}
	createdBy(t, standby, time.Now(), 10*time.Second) // it goes on
	select {
	case <-leader.Done():
		t.Error("the partitioned leader ended, it should stand by")
	default:
	}
	if err := standby.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	createdBy(t, leader, time.Now(), 10*time.Second)
	load.settles(t)
	checkOneWriter(t, leader.user, standby.user)
}

func TestAPIServerOutageIsNotACrash(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, startDirect)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	if err := here(t).KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	controlplane.Consistently(t, 2*leaseDuration, func(context.Context) error {
		for _, c := range []*contender{leader, standby} {
			select {
			case <-c.Done():
				return fmt.Errorf("%s ended with %d", c.user, c.ExitCode())
			default:
			}
		}
		return nil
	})
	if err := here(t).StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
		for _, c := range []*contender{leader, standby} {
			for _, w := range writes(t, c.user) {
				if w.StageTimestamp.After(back) {
					t.Logf("first write %v after the API server was usable again", w.StageTimestamp.Sub(back))
					return nil
				}
			}
		}
		return errors.New("no write since the API server is back")
	})
	load.settles(t)
	checkOneWriter(t, leader.user, standby.user)
}

func TestDeletedLeaseChangesNothingForTheWorkload(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	if err := here(t).Client(t).CoordinationV1().Leases(leaseSpace).Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	controlplane.Eventually(t, 2*leaseDuration, func(context.Context) error {
		for _, c := range []*contender{leader, standby} {
			if c.user == lastWriter(t) && len(writes(t, c.user).Where(controlplane.ByVerb("create"))) > 0 {
				return nil
			}
		}
		return fmt.Errorf("nobody has led and written since %v", deleted)
	})
	load.settles(t)
	checkOneWriter(t, leader.user, standby.user)
}

func TestStolenLeaseStopsTheOldLeaderAtOnce(t *testing.T) {
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	thief := "somebody-else"
	editLease(t, func(spec *coordinationv1.LeaseSpec) {
		spec.HolderIdentity = &thief
		now := metav1.NowMicro()
		spec.AcquireTime, spec.RenewTime = &now, &now
	})
	changes := leaseChanges(t)
	stolen := changes[len(changes)-1].answer
	leader.WaitForLog(t, "Term ends")
	last := time.Duration(0)
	for _, w := range writes(t, leader.user) {
		last = max(last, w.RequestReceivedTimestamp.Sub(stolen))
	}
	t.Logf("last write of the old leader %v after the theft", last)
	if last > 100*time.Millisecond {
		t.Errorf("the old leader wrote for %v after the lease was taken, want at most 100ms", last)
	}
	select {
	case <-leader.Done():
		t.Error("the old leader ended, it should stand by")
	default:
	}
	// The thief never renews: after a lease duration one of the two leads again.
	controlplane.Eventually(t, 3*leaseDuration, func(context.Context) error {
		if who := lastWriter(t); who != leader.user && who != standby.user {
			return fmt.Errorf("the lease was last written by %q", who)
		}
		return nil
	})
	load.settles(t)
}
