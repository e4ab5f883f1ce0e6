package leadership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// These tests freeze watches: a leader without events must resign, and wait until events arrive.

// TestStepDownOfAllProcesses freezes the watches of all processes. One of them has to lead nevertheless.
func TestStepDownOfAllProcesses(t *testing.T) {
	startCluster(t)
	load := work(t, 100*time.Millisecond)
	a, b := pair(t, start)
	awaitCreate(t, time.Time{}, 10*time.Second, a)
	both := []*contender{a, b}
	var thaw []func()
	for _, c := range both {
		thaw = append(thaw, c.proxy.FreezeWatches(faults.Watches()).Thaw)
	}
	alone := func(c *contender) bool {
		return slices.ContainsFunc(strings.Split(c.Output(), "\n"), func(line string) bool {
			return strings.Contains(line, "Competing for the lease again") && strings.Contains(line, "noOtherCandidate=true")
		})
	}
	controlplane.Eventually(t, time.Minute, func(context.Context) error {
		if who := lastWriter(t); !slices.ContainsFunc(both, func(c *contender) bool { return c.user == who && alone(c) }) {
			return fmt.Errorf("%q leads, and has not found itself alone", who)
		}
		return nil
	})
	for _, f := range thaw {
		f()
	}
	for _, c := range both {
		c.WaitForLog(t, "Cache is stale")
		c.WaitForLog(t, "Cache is current again")
		c.runs(t)
	}
	load.settles(t)
	judge(t, both...)
}
