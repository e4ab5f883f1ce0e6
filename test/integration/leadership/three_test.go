package leadership

import (
	"slices"
	"strings"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// trio starts three managers; the first leads.
func trio(t *testing.T) (leader, second, third *contender) {
	t.Helper()
	leader, second = pair(t, start)
	third = start(t, "c")
	third.waitUntilWarm(t)
	return leader, second, third
}

func TestThreeManagersOneAfterTheOther(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	a, b, c := trio(t)
	all := []*contender{a, b, c}
	createdBy(t, a, time.Time{}, 10*time.Second)
	next, _ := relieves(t, a, b, c)
	a.endsWell(t)
	if taken := takings(leaseChanges(t)); len(taken) != 2 {
		t.Errorf("the lease was taken %d times, want twice", len(taken))
	}
	killed := time.Now()
	controlplane.Must(t, next.Kill())
	last := all[3-slices.Index(all, next)] // of 1 and 2, the other
	t.Logf("%s creates a pod %v after SIGKILL", last.user, createdBy(t, last, killed, 2*leaseDuration))
	load.settles(t)
	judge(t, all...)
	expired(t, next, last)
}

// TestThreeManagersOneOfThemBlind: a process with frozen watches does not lead until the watches work.
func TestThreeManagersOneOfThemBlind(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	a, b, c := trio(t)
	all := []*contender{a, b, c}
	createdBy(t, a, time.Time{}, 10*time.Second)
	frozen := time.Now()
	freeze := a.proxy.FreezeWatches(faults.Watches())
	defer freeze.Thaw()
	next, took := createdByOne(t, frozen, 30*time.Second, b, c)
	t.Logf("%s creates a pod %v after the watches of %s froze", next.user, took, a.user)
	last := all[3-slices.Index(all, next)]
	relieves(t, next, last)
	freeze.Thaw()
	a.WaitForLog(t, "Competing for the lease again")
	a.WaitForLog(t, "Cache is current again")
	relieves(t, last, a)
	load.settles(t)
	judge(t, all...)
	if n := strings.Count(a.Output(), "Term begins"); n != 2 {
		t.Errorf("the blind one led %d times, want twice: before and after", n)
	}
}
