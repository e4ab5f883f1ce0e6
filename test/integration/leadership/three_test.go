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
	third.WaitForLog(t, "Waiting for the lease")
	return leader, second, third
}

func TestThreeManagersOneAfterTheOther(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	a, b, c := trio(t)
	all := []*contender{a, b, c}
	awaitCreate(t, time.Time{}, 30*time.Second, a)
	next := relieve(t, a, b, c)
	a.EndsWith(t, 0)
	if n := len(terms(t)); n != 2 {
		t.Errorf("the lease was taken %d times, want twice", n)
	}
	killed := time.Now()
	controlplane.Must(t, next.Kill())
	last := all[3-slices.Index(all, next)] // of 1 and 2, the other
	awaitCreate(t, killed, 2*leaseDuration, last)
	load.settles(t)
	judge(t, all...)
	changes := leaseChanges(t) // a killed process writes nothing, so judge does not notice an early take-over
	taken := slices.IndexFunc(changes, func(c controlplane.LeaseChange) bool { return c.User == last.user })
	if taken < 1 || changes[taken].Received.Sub(changes[taken-1].Received) < leaseDuration {
		t.Errorf("%s took the lease before it expired", last.user)
	}
}

// TestThreeManagersOneWithStaleCaches: a process with frozen watches does not lead until the watches work.
func TestThreeManagersOneWithStaleCaches(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	a, b, c := trio(t)
	all := []*contender{a, b, c}
	awaitCreate(t, time.Time{}, 30*time.Second, a)
	frozen := time.Now()
	freeze := a.proxy.FreezeWatches(faults.Watches())
	defer freeze.Thaw()
	next := awaitCreate(t, frozen, 30*time.Second, b, c)
	last := all[3-slices.Index(all, next)]
	relieve(t, next, last)
	freeze.Thaw()
	a.WaitForLog(t, "Competing for the lease again")
	a.WaitForLog(t, "Cache is current again")
	relieve(t, last, a)
	load.settles(t)
	judge(t, all...)
	if n := strings.Count(a.Output(), "Term begins"); n != 2 {
		t.Errorf("the blind one led %d times, want twice: before and after", n)
	}
}
