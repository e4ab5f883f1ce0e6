package leadership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// In these tests a leader works all the time, and the audit log proves one writer at a time.

func TestSIGTERMHandsOver(t *testing.T) {
	busy(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	relieves(t, leader, standby)
	leader.endsWell(t)
	load.settles(t)
	judge(t, leader, standby)
}

func TestSIGKILLIsSurvivedWhenTheLeaseExpires(t *testing.T) {
	busy(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	killed := time.Now()
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("first pod of the new leader %v after SIGKILL, lease %v", createdBy(t, standby, killed, 2*leaseDuration), leaseDuration)
	load.settles(t)
	judge(t, leader, standby)
	expired(t, leader, standby)
}

func expired(t *testing.T, first, second *contender) {
	t.Helper()
	var renewed time.Time
	for _, c := range leaseChanges(t) {
		if c.User == first.user {
			renewed = c.Received
		}
		if c.User == second.user && c.Received.After(renewed) && !renewed.IsZero() {
			if waited := c.Received.Sub(renewed); waited < leaseDuration {
				t.Errorf("the lease was taken %v after its last renewal, want at least %v", waited, leaseDuration)
			}
			return
		}
	}
	t.Errorf("%s never took the lease of %s", second.user, first.user)
}

func TestStoppedLeaderDoesNotWriteWhenItGoesOn(t *testing.T) {
	busy(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	stopped := time.Now()
	leader.signal(t, syscall.SIGSTOP)
	createdBy(t, standby, stopped, 2*leaseDuration)
	controlplane.Consistently(t, 2*leaseDuration-time.Since(stopped), standing)
	leader.signal(t, syscall.SIGCONT)
	leader.WaitForLog(t, "Term ends")
	standby.signal(t, syscall.SIGTERM)
	createdBy(t, leader, time.Now(), 10*time.Second)
	load.settles(t)
	judge(t, leader, standby)
}

// standing is no check: time has to pass.
func standing(context.Context) error { return nil }

// TestStoppedStandbyTakesNothing: a standby that was stopped with SIGSTOP must not take a lease for expired.
func TestStoppedStandbyTakesNothing(t *testing.T) {
	long(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	for range 3 {
		standby.signal(t, syscall.SIGSTOP)
		controlplane.Consistently(t, leaseDuration+time.Second, standing)
		standby.signal(t, syscall.SIGCONT)
		createdBy(t, leader, time.Now(), leaseDuration)
	}
	if taken := takings(leaseChanges(t)); len(taken) != 1 {
		t.Errorf("the lease was taken %d times, want once", len(taken))
	}
	relieves(t, leader, standby)
	load.settles(t)
	judge(t, leader, standby)
}

func TestPartitionedLeaderStopsAndComesBackAsStandby(t *testing.T) {
	busy(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	cut := time.Now()
	load.deleteAll(t)
	createdBy(t, leader, cut, 10*time.Second)
	if err := leader.proxy.Outage(faults.Partition); err != nil {
		t.Fatal(err)
	}
	createdBy(t, standby, cut, 3*leaseDuration)
	if err := leader.proxy.Restore(); err != nil {
		t.Fatal(err)
	}
	createdBy(t, standby, time.Now(), 10*time.Second)
	leader.runs(t)
	standby.signal(t, syscall.SIGTERM)
	createdBy(t, leader, time.Now(), 10*time.Second)
	load.settles(t)
	judge(t, leader, standby)
}

const outage = 15 * time.Second

func TestAPIServerOutageIsNotACrash(t *testing.T) {
	quiet(t)
	load := work(t)
	leader, standby := pair(t, startDirect)
	both := []*contender{leader, standby}
	createdBy(t, leader, time.Time{}, 10*time.Second)
	if err := here(t).KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	controlplane.Consistently(t, outage, func(context.Context) error {
		return errors.Join(leader.running(), standby.running())
	})
	if err := here(t).StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	who, took := createdByOne(t, back, 30*time.Second, both...)
	t.Logf("%s creates a pod %v after the API server was usable again", who.user, took)
	load.settles(t)
	judge(t, both...)
	for _, c := range both {
		c.runs(t)
		if n := strings.Count(c.Output(), "Waiting for the API server"); n != 0 {
			t.Errorf("%s has started anew", c.user)
		}
	}
}

func TestStolenLeaseStopsTheOldLeaderAtOnce(t *testing.T) {
	alone(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	thief := "somebody-else"
	arrived := leaseEvent(t, thief)
	sent := editLease(t, func(spec *coordinationv1.LeaseSpec) {
		spec.HolderIdentity = &thief
		now := metav1.NowMicro()
		spec.AcquireTime, spec.RenewTime = &now, &now
	})
	changes := leaseChanges(t)
	theft := changes[len(changes)-1]
	stolen := theft.Answered
	select {
	case at := <-arrived:
		here(t).lag = max(0, at.Sub(stolen)) + max(0, theft.Received.Sub(sent))
	case <-time.After(time.Minute):
		t.Fatal("the event of the theft has not come")
	}
	leader.WaitForLog(t, "Term ends")
	last := time.Duration(0)
	for _, w := range here(t).AuditLogSince(t, here(t).since, controlplane.ByUser(leader.user), controlplane.Received, controlplane.ByResource("pods"), controlplane.Writes) {
		last = max(last, w.StageTimestamp.Sub(stolen))
	}
	t.Logf("last write of the old leader %v after the theft, of which %v are the machine's", last, here(t).lag)
	if last > byHand+here(t).lag {
		t.Errorf("the old leader wrote for %v after the lease was taken, want at most %v and the %v that event and request were on their way", last,
			byHand, here(t).lag)
	}
	// The new holder never renews: after a lease duration one of the two leads again.
	controlplane.Eventually(t, 3*leaseDuration, func(context.Context) error {
		if who := lastWriter(t); who != leader.user && who != standby.user {
			return fmt.Errorf("the lease was last written by %q", who)
		}
		return nil
	})
	leader.runs(t)
	load.settles(t)
	judge(t, leader, standby)
}
