package leadership

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// In these tests a leader works all the time, and the audit log proves one writer at a time.

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

func TestPartitionedLeaderStopsAndComesBackAsStandby(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	cut := time.Now()
	load.deleteAll(t)
	createdBy(t, leader, cut, 10*time.Second)
	controlplane.Must(t, leader.proxy.Outage(faults.Partition))
	createdBy(t, standby, cut, 3*leaseDuration)
	controlplane.Must(t, leader.proxy.Restore())
	createdBy(t, standby, time.Now(), 10*time.Second)
	leader.runs(t)
	standby.signal(t, syscall.SIGTERM)
	createdBy(t, leader, time.Now(), 10*time.Second)
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
	createdBy(t, leader, time.Time{}, 10*time.Second)
	for range 2 {
		controlplane.Must(t, here(t).KillAPIServer())
		controlplane.Consistently(t, outage, func(context.Context) error {
			return errors.Join(leader.running(), standby.running())
		})
		controlplane.Must(t, here(t).StartAPIServer())
		back := time.Now()
		who, took := createdByOne(t, back, 30*time.Second, both...)
		t.Logf("%s creates a pod %v after the API server was usable again", who.user, took)
	}
	load.settles(t)
	judge(t, both...)
	for _, c := range both {
		c.runs(t)
		if n := strings.Count(c.Output(), "Waiting for the API server"); n != 0 {
			t.Errorf("%s has started anew", c.user)
		}
	}
}
