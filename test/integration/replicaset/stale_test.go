package replicaset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// TestFrozenPodWatch delivers no events of pods for ten seconds, while specs change and responses are lost.
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
	// The controller remembers its delete, so that the next step does not delete another pod for it.
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
	// The progress of this one is random: events of committed writes must arrive before the next attempt.
	lossy.eventually(func(context.Context) error {
		if got := lossy.active(noisy); len(got) <= 4 {
			return fmt.Errorf("%d active pods, want more than 4", len(got))
		}
		return nil
	})
	lossy.scale("rs", 3)
	time.Sleep(time.Until(start.Add(frozen)))
	freeze.Thaw()
	ups.settledAt(7)
	downs.settledAt(1)
	noisys.settledAt(3)
}

// TestStaleStandby: a standby whose caches lag takes over. A live read precedes its first write.
func TestStaleStandby(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to int32
	}{{"ScaledUp", 2, 6}, {"ScaledDown", 6, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			watches := faults.New(t, controllerConfig(), faults.WithName("watches"))
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
