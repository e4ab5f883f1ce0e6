package replicaset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// TestFrozenPodWatch: for ten seconds no event about pods arrives, while specs change and answers are lost.
func TestFrozenPodWatch(t *testing.T) {
	f := startFaulty(t)
	const frozen = 10 * time.Second
	grow, shrink, lossy := newNamespace(t), newNamespace(t), newNamespace(t)
	up, down, noisy := grow.apply(3), shrink.apply(6), lossy.apply(4)
	ups, downs, noisys := grow.observe(up, 0, 3), shrink.observe(down, 0, 6), lossy.observe(noisy, 0, 4)
	ups.settledAt(3)
	downs.settledAt(6)
	noisys.settledAt(4)

	freeze := f.watches.FreezeWatches(faults.Watches("pods"))
	start := time.Now()
	f.requests.Inject(on(lossy, faults.Writes), faults.DropAnswer(), faults.Chance(0.5))
	ups.bounds(3, 7)
	downs.bounds(2, 6)
	noisys.bounds(3, 8)
	grow.scale("rs", 7)
	shrink.scale("rs", 2)
	lossy.scale("rs", 8)
	// A delete shows in no cache: it is remembered, so that the next step does not delete for it once more.
	shrink.eventually(func(context.Context) error {
		if got := shrink.active(down); len(got) != 2 {
			return fmt.Errorf("%d active pods, want 2", len(got))
		}
		return nil
	})
	downs.catchUp()
	downs.bounds(1, 2)
	shrink.scale("rs", 1)
	shrink.eventually(func(context.Context) error {
		if got := shrink.active(down); len(got) != 1 {
			return fmt.Errorf("%d active pods, want 1", len(got))
		}
		return nil
	})
	// How far this one gets is chance: what was answered must be seen before what was not is tried again.
	lossy.eventually(func(context.Context) error {
		if got := lossy.active(noisy); len(got) <= 4 {
			return fmt.Errorf("%d active pods, want more than 4", len(got))
		}
		return nil
	})
	lossy.scale("rs", 3)
	time.Sleep(time.Until(start.Add(frozen))) // the fault is its duration
	freeze.Thaw()
	ups.settledAt(7)
	downs.settledAt(1)
	noisys.settledAt(3)
}

// TestWatchFrozenForLong: when the caches do not come to show our own writes for half a minute, the controller reads live and goes on, once per
// half minute.
func TestWatchFrozenForLong(t *testing.T) {
	requests := faults.New(t, controllerConfig(), faults.WithName("requests"))
	watches := faults.New(t, watcherConfig(), faults.WithName("watches"))
	now := testingclock.NewFakeClock(time.Now())
	l := standby(t, defaults(), requests.Config(), watches.Config(), now).beginTerm()
	n := newNamespace(t)
	rs := n.apply(2)
	o := n.observe(rs, 0, 2)
	o.settledAt(2)

	watches.FreezeWatches(faults.Watches("pods"))
	o.bounds(2, 4)
	n.scale("rs", 4)
	n.eventually(func(context.Context) error {
		if got := n.active(rs); len(got) != 4 {
			return fmt.Errorf("%d active pods, want 4", len(got))
		}
		return nil
	})
	o.catchUp()
	o.bounds(4, 6)
	n.scale("rs", 6)
	before := l.Metric(t, "replicaset_controller_live_reads_total", "overdue")
	n.eventually(func(context.Context) error {
		if l.Metric(t, "replicaset_controller_live_reads_total", "overdue") == before {
			now.Step(5 * time.Second)
		}
		if got := n.active(rs); len(got) != 6 {
			return fmt.Errorf("%d active pods, want 6", len(got))
		}
		return nil
	})
	o.catchUp()
	o.bounds(6, 6)
	if reads := l.Metric(t, "replicaset_controller_live_reads_total", "overdue") - before; reads != 1 {
		t.Errorf("%v live reads, want 1", reads)
	}
	// Down again, by a controller that has seen neither the pods it made nor their deletion.
	o.bounds(1, 6)
	n.scale("rs", 1)
	n.eventually(func(context.Context) error {
		now.Step(5 * time.Second)
		if got := n.active(rs); len(got) != 1 {
			return fmt.Errorf("%d active pods, want 1", len(got))
		}
		return nil
	})
	o.catchUp()
	o.bounds(1, 1)
}

// TestStaleStandby: a standby whose caches lag behind what the leader did takes over. Its first write is decided on a live read.
func TestStaleStandby(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to int32
	}{{"ScaledUp", 2, 6}, {"ScaledDown", 6, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			watches := faults.New(t, watcherConfig(), faults.WithName("watches"))
			next := standby(t, defaults(), controllerConfig(), watches.Config(), clock.RealClock{})
			leader := start(t, defaults())
			n := newNamespace(t)
			rs := n.apply(tt.from)
			o := n.observe(rs, 0, int(tt.from))
			o.settledAt(int(tt.from))
			freeze := watches.FreezeWatches(faults.Watches("pods"))
			o.bounds(int(min(tt.from, tt.to)), int(max(tt.from, tt.to)))
			n.scale("rs", tt.to)
			o.settledAt(int(tt.to))
			leader.EndTerm()

			next.beginTerm()
			n.eventually(func(context.Context) error {
				if next.Metric(t, "replicaset_controller_live_reads_total", "first_write") == 0 {
					return fmt.Errorf("the standby has not looked yet")
				}
				return nil
			})
			controlplane.Consistently(t, 300*time.Millisecond, func(context.Context) error {
				if got := n.active(rs); len(got) != int(tt.to) {
					return fmt.Errorf("%d active pods, want %d", len(got), tt.to)
				}
				return nil
			})
			freeze.Thaw()
			o.settledAt(int(tt.to))
		})
	}
}

// TestFirstWritesNeedNoLiveReadOnceTheCachesShowAllBeforeTheTerm: what a term costs is one look at how far the cluster has come, not one for
// each ReplicaSet.
func TestFirstWritesNeedNoLiveReadOnceTheCachesShowAllBeforeTheTerm(t *testing.T) {
	l := start(t, defaults())
	n := newNamespace(t)
	for i := range 3 {
		// The pods of the first bring the cache past the start of the term; the second waits until the term has asked where that is.
		n.applyNamed(fmt.Sprintf("earlier-%d", i), 1)
		n.settled(fmt.Sprintf("earlier-%d", i))
	}
	before := l.Metric(t, "replicaset_controller_live_reads_total")
	for i := range 20 {
		n.applyNamed(fmt.Sprintf("rs-%d", i), 2)
	}
	for i := range 20 {
		n.settled(fmt.Sprintf("rs-%d", i))
	}
	if reads := l.Metric(t, "replicaset_controller_live_reads_total") - before; reads != 0 {
		t.Errorf("%v live reads for 20 ReplicaSets, want none", reads)
	}
}
