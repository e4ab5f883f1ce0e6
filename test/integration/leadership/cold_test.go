package leadership

import (
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// startCold starts a manager whose caches wait until it leads.
func startCold(t *testing.T, name string) *contender {
	t.Helper()
	return launch(t, name, controlplane.ManagerBinary(t), "--leader-elect-warm-standby=false")
}

// A cold standby has no caches; its first term fills them. If that term ends before they are full, the next one goes on, and their
// watches are looked after like those of any leader.
func TestColdStandbyFillsItsCachesWhenItWins(t *testing.T) {
	quiet(t) // a silence of 90 s
	load := work(t)
	first, second := pair(t, startCold)
	createdBy(t, first, time.Time{}, 10*time.Second)
	if n := openStreams(t, second.user); n != 0 {
		t.Errorf("the standby has %d watches, want none", n)
	}

	pods := faults.NewGate()
	rule := second.proxy.Inject(faults.On("list,watch", "pods"), faults.Hold(pods))
	first.signal(t, syscall.SIGTERM)
	first.endsWell(t)
	pods.Next(t)
	thief := "somebody-else"
	editLease(t, func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = &thief })
	second.WaitForLog(t, "Term ends")
	rule.Remove()
	pods.Open()
	second.WaitForLog(t, `"Caches populated" type="*v1.Pod"`)
	giveAway(t)
	createdBy(t, second, time.Now(), leaseDuration)

	third := startCold(t, "c")
	third.waitUntilWarm(t)
	frozen := time.Now()
	freeze := second.proxy.FreezeWatches(faults.Watches("pods"))
	defer freeze.Thaw()
	t.Logf("another serves %v after the pod watch froze", createdBy(t, third, frozen, 150*time.Second))
	load.settles(t)
	judge(t, first, second, third)
}
