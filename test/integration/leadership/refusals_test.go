package leadership

import (
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// Only the lease is in trouble: everything else the leader asks for is answered.

func TestRefusedRenewalsAreALostLease(t *testing.T) {
	busy(t)
	losesTheLease(t, faults.On("update", "leases"), faults.Refuse(503))
}

// Its renewals are done, so nobody else could ever take the lease, if it did not make way.
func TestUnansweredRenewalsMakeWay(t *testing.T) {
	busy(t)
	losesTheLease(t, faults.On("update", "leases"), faults.DropAnswer())
}

func losesTheLease(t *testing.T, match faults.Match, fault faults.Fault) {
	t.Helper()
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	rule := leader.proxy.Inject(match, fault)
	begun := time.Now()
	t.Logf("another serves after %v", createdBy(t, standby, begun, 5*leaseDuration))
	rule.Remove()
	leader.runs(t)
	leader.WaitForLog(t, "Term ends")
	controlplane.Consistently(t, 2*leaseDuration, standing) // longer than it makes way
	standby.signal(t, syscall.SIGTERM)
	createdBy(t, leader, time.Now(), 2*leaseDuration)
	load.settles(t)
	judge(t, leader, standby)
}

// Nobody can release a lease then, but everybody can go.
func TestSIGTERMWhileTheAPIServerIsAway(t *testing.T) {
	busy(t)
	work(t)
	leader, standby := pair(t, startDirect)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	if err := here(t).KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	signalled := time.Now()
	leader.signal(t, syscall.SIGTERM)
	standby.signal(t, syscall.SIGTERM)
	leader.endsWell(t, 20*time.Second)
	standby.endsWell(t, 20*time.Second)
	t.Logf("both have ended %v after SIGTERM", time.Since(signalled))
	if err := here(t).StartAPIServer(); err != nil {
		t.Fatal(err)
	}
}
