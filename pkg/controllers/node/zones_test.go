package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fill makes n members of a zone, named prefix0, prefix1, …
func (z *zones) fill(prefix, zone string, m member, n int, now time.Time) {
	for i := range n {
		z.setNode(fmt.Sprintf("%s%d", prefix, i), zone, m, now)
	}
}

var (
	up       = member{counted: true, ready: true}
	down     = member{counted: true}
	excluded = member{}
)

// zonesBench records the effects of zones.
type zonesBench struct {
	*zones
	turns   map[string]time.Duration // of the nodes that were queued
	toggles []bool
}

func testZones(cfg Config) *zonesBench {
	b := &zonesBench{turns: map[string]time.Duration{}}
	b.zones = newZones(cfg, newMetrics(prometheus.NewRegistry()),
		func(name string, after time.Duration) { b.turns[name] = after }, func(stopped bool) { b.toggles = append(b.toggles, stopped) })
	return b
}

// reset forgets the effects so far.
func (b *zonesBench) reset() { b.turns, b.toggles = map[string]time.Duration{}, nil }

func (z *zones) states() map[string]zoneState {
	z.lock.Lock()
	defer z.lock.Unlock()
	states := map[string]zoneState{}
	for key, in := range z.zones {
		states[key] = in.state
	}
	return states
}

func TestZoneStates(t *testing.T) {
	all := func(n int, m member) []member { return slices.Repeat([]member{m}, n) }
	type step map[string][]member
	for _, tt := range []struct {
		name            string
		first, then     step
		initial, follow map[string]zoneState
		stopped, stops  bool
	}{
		{
			"one node, no labels, well", step{"": {up}}, step{"": {up}},
			map[string]zoneState{"": zoneNormal}, map[string]zoneState{"": zoneNormal}, false, false,
		},
		{
			"both zones down, one comes back", step{"1": {down}, "2": {down}}, step{"1": {down}, "2": {up}},
			map[string]zoneState{"1": zoneFull, "2": zoneFull}, map[string]zoneState{"1": zoneFull, "2": zoneNormal}, true, false,
		},
		{
			"two of five down, then three", step{"1": {down, down, up, up, up}}, step{"1": {down, down, down, up, up}},
			map[string]zoneState{"1": zoneNormal}, map[string]zoneState{"1": zonePartial}, false, false,
		},
		{
			"the last one up fails", step{"1": {down, down, up}}, step{"1": all(3, down)},
			map[string]zoneState{"1": zoneNormal}, map[string]zoneState{"1": zoneFull}, false, true,
		},
		{
			"a healthy node that is excluded does not help", step{"1": {down, excluded}}, step{"1": {down, excluded}},
			map[string]zoneState{"1": zoneFull}, map[string]zoneState{"1": zoneFull}, true, true,
		},
		{
			"a zone of excluded nodes does not keep another from stopping", step{"1": {up}, "2": {excluded}}, step{"1": {down}, "2": {excluded}},
			map[string]zoneState{"1": zoneNormal, "2": zoneNormal}, map[string]zoneState{"1": zoneFull, "2": zoneNormal}, false, true,
		},
		{
			"exactly the threshold", step{"1": append(all(11, down), all(9, up)...)}, step{"1": append(all(10, down), all(10, up)...)},
			map[string]zoneState{"1": zonePartial}, map[string]zoneState{"1": zoneNormal}, false, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z := testZones(defaults())
			for i, s := range []struct {
				nodes   step
				want    map[string]zoneState
				stopped bool
			}{{tt.first, tt.initial, tt.stopped}, {tt.then, tt.follow, tt.stops}} {
				for zone, members := range s.nodes {
					for n, m := range members {
						z.setNode(fmt.Sprintf("%s/%d", zone, n), zone, m, day)
					}
				}
				if diff := cmp.Diff(s.want, z.states()); diff != "" || z.isStopped() != s.stopped {
					t.Errorf("step %d: stopped = %v, want %v; states (-want +got):\n%s", i, z.isStopped(), s.stopped, diff)
				}
			}
		})
	}
}

func TestTokensGoToThoseWhoNeedThem(t *testing.T) {
	at := func(s int) time.Time { return day.Add(time.Duration(s) * time.Second) }
	z := testZones(defaults())
	z.fill("up", "z", up, 20, day)
	z.fill("down", "z", down, 4, day)
	ask := func(name string, now time.Time, granted bool, wait time.Duration) {
		t.Helper()
		ok, w := z.acquire(name, false, now)
		if ok != granted || (w-wait).Abs() > time.Millisecond {
			t.Errorf("%s asks at %v: granted %v, wait %v; want %v, %v", name, now.Sub(day), ok, w, granted, wait)
		}
	}
	ask("down0", at(0), true, 0)
	ask("down1", at(0), false, 10*time.Second)
	ask("down2", at(1), false, 19*time.Second)
	ask("down1", at(5), false, 5*time.Second) // a repeated call changes nothing
	z.withdraw("down1", at(5))                // the node came back
	if got, want := z.turns["down2"], 5*time.Second; (got - want).Abs() > time.Millisecond {
		t.Errorf("next in line queued after %v, want %v", got, want)
	}
	ask("down2", at(10), true, 0)
	ask("down3", at(20), true, 0)
	ask("down0", at(31), true, 0)               // the taint was removed by hand
	ask("down0", at(31), false, 10*time.Second) // the write failed: the node waits for another token
	if got := testutil.ToFloat64(z.metrics.pending.WithLabelValues("z")); got != 1 {
		t.Errorf("%v pending taints, want 1", got)
	}
}

func TestZoneWithoutRateTaintsNobody(t *testing.T) {
	cfg := defaults()
	cfg.EvictionRate = 0
	z := testZones(cfg)
	z.fill("up", "z", up, 3, day)
	z.setNode("down", "z", down, day)
	if ok, wait := z.acquire("down", false, day.Add(time.Hour)); ok || wait != 0 {
		t.Errorf("granted %v, wait %v with rate 0", ok, wait)
	}
}

// When the first node leaves the line, the next node is queued for an earlier turn.
func TestTheNextInLineIsWoken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(z *zonesBench)
		wakes string
		at    time.Duration
	}{
		{"the head is deleted", func(z *zonesBench) { z.removeNode("down1", day) }, "down2", 10 * time.Second},
		{"the head moves to another zone", func(z *zonesBench) { z.setNode("down1", "other", down, day) }, "down2", 10 * time.Second},
		{"the head needs no taint any more", func(z *zonesBench) { z.withdraw("down1", day) }, "down2", 10 * time.Second},
		{"one in the middle is deleted: nothing changes for the head", func(z *zonesBench) { z.removeNode("down2", day) }, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z := testZones(defaults())
			z.fill("up", "z", up, 20, day)
			z.fill("down", "z", down, 4, day)
			for i := range 4 { // the first is granted, the next two wait in line
				z.acquire(fmt.Sprint("down", i), false, day)
			}
			z.reset()
			tt.leave(z)
			if tt.wakes == "" {
				if len(z.turns) > 0 {
					t.Errorf("queues %v, want none", z.turns)
				}
				return
			}
			if after, ok := z.turns[tt.wakes]; !ok || after.Round(time.Millisecond) != tt.at {
				t.Errorf("queues %v, want %s after %v", z.turns, tt.wakes, tt.at)
			}
		})
	}
}

// Changes of several zones at once must not look as if all zones had failed.
func TestThawDoesNotStopAndResume(t *testing.T) {
	z := testZones(defaults())
	z.setNode("a", "1", down, day)
	z.setNode("b", "2", up, day)
	z.freeze(true, day)
	z.reset()
	z.setNode("a", "1", up, day)
	z.setNode("b", "2", down, day)
	z.freeze(false, day)
	if len(z.toggles) > 0 || z.isStopped() {
		t.Errorf("one zone has recovered and the other failed: toggles %v, stopped %v", z.toggles, z.isStopped())
	}
	z.setNode("a", "2", up, day)
	if len(z.toggles) > 0 {
		t.Error("the only Ready node moves to another zone, and tainting stops and resumes")
	}
}

func TestFrozenZonesTaintWhoHasBeenGivenAllTime(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 10, day)
	z.fill("down", "z", down, 2, day)
	z.freeze(true, day)
	if ok, _ := z.acquire("down0", false, day); ok {
		t.Error("frozen: granted")
	}
	z.withdraw("down0", day)
	if ok, _ := z.acquire("down1", true, day); !ok {
		t.Error("a node that no suspension holds back is refused while zones are frozen")
	}
}

func TestFreezeKeepsStatesAndForgetsNothing(t *testing.T) {
	z := testZones(defaults())
	z.fill("node", "z", up, 10, day)
	z.setNode("node0", "z", down, day)
	z.acquire("node0", false, day) // the token is gone
	z.freeze(true, day)
	z.setNode("node1", "z", down, day)
	if ok, _ := z.acquire("node1", false, day.Add(time.Hour)); ok {
		t.Error("frozen: a taint was granted")
	}
	z.fill("node", "z", down, 10, day)
	if z.isStopped() || z.states()["z"] != zoneNormal {
		t.Errorf("frozen: stopped %v, states %v", z.isStopped(), z.states())
	}
	z.fill("node", "z", up, 9, day)
	z.freeze(false, day)
	if z.isStopped() || len(z.toggles) > 0 {
		t.Errorf("after the freeze: stopped %v, toggles %v", z.isStopped(), z.toggles)
	}
	if ok, wait := z.acquire("node9", false, day.Add(time.Second)); ok {
		t.Errorf("after the freeze the limiter is new: granted after 1 s (wait %v)", wait)
	}
}

// Nodes that began to wait while the zones were frozen have no other event.
func TestThawWakesThoseWhoAskedWhileFrozen(t *testing.T) {
	z := testZones(defaults())
	z.fill("node", "z", up, 10, day)
	z.setNode("node0", "z", down, day)
	z.setNode("node1", "z", down, day)
	z.freeze(true, day)
	for _, name := range []string{"node0", "node1"} {
		if ok, wait := z.acquire(name, false, day); ok || wait != 0 {
			t.Fatalf("frozen: %s granted %v, wait %v; want a promise to be woken", name, ok, wait)
		}
	}
	z.reset()
	z.freeze(false, day)
	if diff := cmp.Diff(map[string]time.Duration{"node0": 0}, z.turns); diff != "" {
		t.Errorf("thawed, the rate as it was: turns (-want +got):\n%s", diff)
	}
	if ok, _ := z.acquire("node0", false, day); !ok || z.turns["node1"].Round(time.Millisecond) != 10*time.Second {
		t.Errorf("granted %v, then queues %v, want node1 after 10 s", ok, z.turns)
	}
}
