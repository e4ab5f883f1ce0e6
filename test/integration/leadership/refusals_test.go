package leadership

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// TestLeaderThatCannotRenewStepsDown lets only the renewals of the leader fail. A renewal that is committed without a
// response keeps the lease from expiring, so the leader has to resign for another process to lead.
func TestLeaderThatCannotRenewStepsDown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faults.Fault{"rejected": faults.Refuse(503), "committed without a response": faults.DropAnswer()} {
		t.Run(name, func(t *testing.T) {
			startCluster(t)
			load := work(t, 100*time.Millisecond)
			leader, standby := pair(t, start)
			awaitCreate(t, time.Time{}, 30*time.Second, leader)
			rule := leader.proxy.Inject(faults.On("update", "leases"), fault)
			awaitCreate(t, time.Now(), 5*leaseDuration, standby)
			rule.Remove()
			controlplane.Must(t, leader.running())
			leader.WaitForLog(t, "Term ends")
			leader.WaitForLog(t, "Standing by for another holder")
			controlplane.Must(t, standby.Signal(syscall.SIGTERM))
			awaitCreate(t, time.Now(), 2*leaseDuration, leader)
			load.settles(t)
			judge(t, leader, standby)
		})
	}
}

// TestSIGTERMWhileTheAPIServerIsAway ends managers whose endpoint needs reviews and client CAs of an unreachable API
// server.
func TestSIGTERMWhileTheAPIServerIsAway(t *testing.T) {
	startCluster(t)
	work(t, time.Second)
	leader, standby := pair(t, func(t *testing.T, name string, _ ...string) *contender {
		t.Helper()
		reviewer := here(t).KubeconfigFor(t, setConfig(t, name))
		return startDirect(t, name, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", controlplane.FreePort(t)),
			"--authentication-kubeconfig="+reviewer, "--authorization-kubeconfig="+reviewer)
	})
	awaitCreate(t, time.Time{}, 30*time.Second, leader)
	controlplane.Must(t, here(t).KillAPIServer())
	controlplane.Must(t, leader.Signal(syscall.SIGTERM))
	controlplane.Must(t, standby.Signal(syscall.SIGTERM))
	leader.EndsWith(t, 0)
	standby.EndsWith(t, 0)
	controlplane.Must(t, here(t).StartAPIServer())
}

// TestSIGTERMDuringAWriteWithoutResponse: the write may still be committed, so the lease is kept and the exit code
// is not 0.
func TestSIGTERMDuringAWriteWithoutResponse(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	leader, standby := pair(t, start, "--controller-shutdown-timeout=1s")
	awaitCreate(t, time.Time{}, 30*time.Second, leader)
	gate := faults.NewGate()
	t.Cleanup(gate.Open)
	leader.proxy.Inject(faults.On("create", "pods"), faults.Hold(gate), faults.Next(1))
	held := gate.Next(t)
	signalled := time.Now()
	controlplane.Must(t, leader.Signal(syscall.SIGTERM))
	leader.EndsWith(t, 1)
	held.Release()
	awaitCreate(t, signalled, 3*leaseDuration, standby)
	leader.WaitForLog(t, "Not releasing the lease")
	standby.WaitForLog(t, `cause="expired"`)
	load.settles(t)
	judge(t, leader, standby)
}
