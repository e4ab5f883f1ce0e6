package leadership

import (
	"context"
	"strings"
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

// Nobody can release a lease then, but everybody can go, also with an endpoint whose reviews and client CAs come from that API server.
func TestSIGTERMWhileTheAPIServerIsAway(t *testing.T) {
	for _, tt := range []struct {
		name string
		away time.Duration // before the signal; informers wait longer each time
		play func(*testing.T)
	}{
		{"since a moment", 0, quiet},
		{"for long", 40 * time.Second, long},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.play(t)
			work(t)
			leader, standby := pair(t, startServing)
			createdBy(t, leader, time.Time{}, 10*time.Second)
			if err := here(t).KillAPIServer(); err != nil {
				t.Fatal(err)
			}
			controlplane.Consistently(t, tt.away, func(context.Context) error { return nil })
			signalled := time.Now()
			leader.signal(t, syscall.SIGTERM)
			standby.signal(t, syscall.SIGTERM)
			leader.endsWell(t)
			standby.endsWell(t)
			t.Logf("both have ended %v after SIGTERM", time.Since(signalled))
			if err := here(t).StartAPIServer(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The write may still be done, whenever it gets out of where it is held: the lease is not given away, and the process ends and says that it was not clean.
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
	leader.proxy.Inject(faults.On("create", "pods"), faults.Hold(gate), faults.Next(1)) // one: the others of its batch must not come later still
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

// A network that breaks every connection once a second lets nobody finish a long request, and many short ones.
func TestConnectionsResetEverySecond(t *testing.T) {
	long(t)
	load := work(t)
	leader, standby := pair(t, start)
	createdBy(t, leader, time.Time{}, 10*time.Second)
	for range 8 {
		leader.proxy.CutConnections()
		standby.proxy.CutConnections()
		controlplane.Consistently(t, time.Second, standing)
	}
	who, _ := createdByOne(t, time.Now(), 30*time.Second, leader, standby)
	other := map[*contender]*contender{leader: standby, standby: leader}[who]
	relieves(t, who, other)
	load.settles(t)
	judge(t, leader, standby)
	for _, c := range []*contender{leader, standby} {
		// Nothing happens to namespaces meanwhile, so each of their watches ends without an event.
		if n := strings.Count(c.Output(), `"Caches populated" type="*v1.Namespace"`); n > 3 {
			t.Errorf("%s listed all namespaces %d times, want about once", c.user, n)
		}
	}
}
