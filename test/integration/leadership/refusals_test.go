package leadership

import (
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// In these tests only requests for the lease fail.

func TestRefusedRenewalsAreALostLease(t *testing.T) {
	busy(t)
	losesTheLease(t, faults.On("update", "leases"), faults.Refuse(503))
}

// TestUnansweredRenewalsMakeWay: renewals are committed without a response, so the leader has to resign for another to
// lead.
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
	controlplane.Consistently(t, 2*leaseDuration, standing)
	standby.signal(t, syscall.SIGTERM)
	createdBy(t, leader, time.Now(), 2*leaseDuration)
	load.settles(t)
	judge(t, leader, standby)
}

// TestSIGTERMWhileTheAPIServerIsAway ends managers whose endpoint needs reviews and client CAs of an unreachable API
// server.
func TestSIGTERMWhileTheAPIServerIsAway(t *testing.T) {
	quiet(t)
	work(t)
	leader, standby := pair(t, startServing)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	if err := here(t).KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	signalled := time.Now()
	leader.signal(t, syscall.SIGTERM)
	standby.signal(t, syscall.SIGTERM)
	leader.endsWell(t)
	standby.endsWell(t)
	t.Logf("both have ended %v after SIGTERM", time.Since(signalled))
	if err := here(t).StartAPIServer(); err != nil {
		t.Fatal(err)
	}
}

// TestSIGTERMWhileAWriteIsNotAnswered: the write may still be committed, so the lease is kept and the exit code is not
// 0.
func TestSIGTERMWhileAWriteIsNotAnswered(t *testing.T) {
	busy(t)
	load := work(t)
	leader, standby := pair(t, func(t *testing.T, name string) *contender {
		t.Helper()
		return launch(t, name, controlplane.ManagerBinary(t), "--controller-shutdown-timeout=1s")
	})
	createdBy(t, leader, time.Time{}, 10*time.Second)
	gate := faults.NewGate()
	t.Cleanup(gate.Open)
	leader.proxy.Inject(faults.On("create", "pods"), faults.Hold(gate), faults.Next(1))
	held := gate.Next(t)
	signalled := time.Now()
	leader.signal(t, syscall.SIGTERM)
	if code, err := leader.Wait(time.Minute); err != nil || code != 1 {
		t.Errorf("the leader ended with %d, %v; want 1", code, err)
	}
	held.Release()
	t.Logf("the next one creates a pod %v after SIGTERM", createdBy(t, standby, signalled, 3*leaseDuration))
	leader.WaitForLog(t, "Not releasing the lease")
	standby.WaitForLog(t, `cause="expired"`)
	load.settles(t)
	judge(t, leader, standby)
}
