package leadership

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// In these tests a leader works all the time, and the audit log proves one writer at a time.

func TestPartitionedLeaderStopsAndComesBackAsStandby(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	leader, standby := pair(t, start)
	awaitCreate(t, time.Time{}, 30*time.Second, leader)
	cut := time.Now()
	load.deleteAll(t)
	awaitCreate(t, cut, 10*time.Second, leader)
	controlplane.Must(t, leader.proxy.Outage(faults.Partition))
	awaitCreate(t, cut, 3*leaseDuration, standby)
	controlplane.Must(t, leader.proxy.Restore())
	awaitCreate(t, time.Now(), 10*time.Second, standby)
	controlplane.Must(t, leader.running())
	controlplane.Must(t, standby.Signal(syscall.SIGTERM))
	awaitCreate(t, time.Now(), 10*time.Second, leader)
	load.settles(t)
	judge(t, leader, standby)
}

// outage is longer than the lease.
const outage = 10 * time.Second

// Each outage ends the term. The processes continue with their caches.
func TestTwoAPIServerOutagesAreNotACrash(t *testing.T) {
	startCluster(t)
	load := work(t, time.Second)
	leader, standby := pair(t, startDirect)
	both := []*contender{leader, standby}
	awaitCreate(t, time.Time{}, 30*time.Second, leader)
	for range 2 {
		controlplane.Must(t, here(t).KillAPIServer())
		controlplane.Consistently(t, outage, func(context.Context) error {
			return errors.Join(leader.running(), standby.running())
		})
		controlplane.Must(t, here(t).StartAPIServer())
		awaitCreate(t, time.Now(), 30*time.Second, both...)
	}
	load.settles(t)
	judge(t, both...)
	controlplane.Must(t, errors.Join(leader.running(), standby.running()))
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
