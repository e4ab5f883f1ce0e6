package leadership

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// Ways to be blind in which something goes on all the time: renewals, lists, streams that are opened anew, bytes. For each, what makes a
// manager blind and when it began.
var blindnesses = []struct {
	name  string
	blind func(t *testing.T, c *contender) (heal func())
}{
	{"connections cannot be made, and those of the watches are gone", func(t *testing.T, c *contender) func() {
		if err := c.proxy.Outage(faults.HungDials); err != nil {
			t.Fatal(err)
		}
		if n := c.proxy.CutConnectionsOf(faults.Watches("pods")); n == 0 {
			t.Fatal("no connection carried the watch of pods")
		}
		return func() {
			if err := c.proxy.Restore(); err != nil {
				t.Error(err)
			}
		}
	}},
	{"nothing is delivered, and a proxy ends idle streams", func(_ *testing.T, c *contender) func() {
		idle, freeze := c.proxy.CutIdleWatches(faults.Watches("pods"), time.Minute), c.proxy.FreezeWatches(faults.Watches("pods"))
		return func() { freeze.Thaw(); idle.Thaw() }
	}},
	{"the API server has stopped to watch, and goes on with bookmarks", func(_ *testing.T, c *contender) func() {
		return c.proxy.StickWatches(faults.Watches("pods"), 20*time.Second).Thaw
	}},
}

func TestBlindLeaderIsReplaced(t *testing.T) {
	for _, b := range blindnesses {
		t.Run(b.name, func(t *testing.T) {
			long(t) // silence is judged after a minute and a half
			load := work(t)
			leader, standby := pair(t, start)
			createdBy(t, leader, time.Time{}, 10*time.Second)
			began := time.Now()
			heal := b.blind(t, leader)
			t.Logf("another serves after %v", createdBy(t, standby, began, 150*time.Second))
			heal()
			leader.WaitForLog(t, "Cache is current again")
			load.settles(t)
			leader.runs(t)
			judge(t, leader, standby)
			if taken := takings(leaseChanges(t)); len(taken) != 2 {
				t.Errorf("the lease was taken %d times, want twice: nobody flaps", len(taken))
			}
		})
	}
}

// A healthy cluster in which nothing happens, behind a proxy that ends each stream before the first bookmark: nobody steps down, nobody asks
// for everything again and again. Ninety seconds without a bookmark are what makes a watch suspect, so less than two minutes show nothing.
func TestQuietClusterBehindAProxyThatEndsIdleStreams(t *testing.T) {
	long(t)
	const idle, lasts = 30 * time.Second, 4 * time.Minute
	forgetLease(t)
	leader := launch(t, "a", controlplane.ManagerBinary(t))
	leader.waitUntilLeading(t)
	standby := launch(t, "b", controlplane.ManagerBinary(t))
	standby.waitUntilWarm(t)
	both := []*contender{leader, standby}
	begun := time.Now()
	for _, c := range both {
		c.proxy.CutIdleWatches(faults.Watches("pods,replicasets,nodes,namespaces"), idle)
	}
	controlplane.Consistently(t, lasts, func(context.Context) error {
		for _, c := range both {
			if strings.Contains(c.Output(), "Cache is stale") {
				return fmt.Errorf("%s takes a cache for stale", c.user)
			}
			if err := c.running(); err != nil {
				return err
			}
		}
		return nil
	})
	if taken := takings(leaseChanges(t)); len(taken) != 1 {
		t.Errorf("the lease was taken %d times, want once", len(taken))
	}
	for _, c := range both {
		whole, cut := map[string]int{}, 0
		for _, r := range c.proxy.Requests() {
			if r.Time.Before(begun) {
				continue
			}
			switch {
			case r.Verb == "list" && !strings.Contains("&"+r.Query+"&", "&limit=1&"), strings.Contains(r.Query, "sendInitialEvents=true"):
				whole[r.Resource]++
			case r.Verb == "watch" && r.Resource == "pods":
				cut++
			}
		}
		most := 1 + int(lasts/(10*time.Minute))
		for resource, n := range whole {
			if n > most {
				t.Errorf("%s asked for all %s %d times in %v, want at most %d", c.user, resource, n, lasts, most)
			}
		}
		if cut < int(lasts/idle)/2 {
			t.Errorf("%s opened %d watches of pods, want about %d: the test shows nothing", c.user, cut, lasts/idle)
		}
		t.Logf("%s in %v: %d watches of pods, whole lists %v", c.user, lasts, cut, whole)
	}
}
