package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/outcome"
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
			"nodes without conditions, then three of four silent", step{"1": all(4, down)}, step{"1": {down, down, down, up}},
			map[string]zoneState{"1": zoneFull}, map[string]zoneState{"1": zonePartial}, true, false,
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
			"one zone of two down", step{"1": {down}, "2": {up}}, step{"1": {down}, "2": {up}},
			map[string]zoneState{"1": zoneFull, "2": zoneNormal}, map[string]zoneState{"1": zoneFull, "2": zoneNormal}, false, false,
		},
		{
			"both zones down", step{"1": {down}, "2": {down}}, step{"1": {down}, "2": {down}},
			map[string]zoneState{"1": zoneFull, "2": zoneFull}, map[string]zoneState{"1": zoneFull, "2": zoneFull}, true, true,
		},
		{
			"Ready removed from the only node", step{"1": {up}}, step{"1": {down}},
			map[string]zoneState{"1": zoneNormal}, map[string]zoneState{"1": zoneFull}, false, true,
		},
		{
			"a healthy node that is excluded does not help", step{"1": {down, excluded}}, step{"1": {down, excluded}},
			map[string]zoneState{"1": zoneFull}, map[string]zoneState{"1": zoneFull}, true, true,
		},
		{
			"excluded nodes only", step{"1": all(3, excluded)}, step{"1": all(3, excluded)},
			map[string]zoneState{"1": zoneNormal}, map[string]zoneState{"1": zoneNormal}, false, false,
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

func TestExcluded(t *testing.T) {
	for _, tt := range []struct {
		name string
		node *corev1.Node
		want bool
	}{
		{"no labels", &corev1.Node{}, true},
		{"a name that sounds like a master", aNode("master-abc", "", ""), true},
		{"the label, empty", aNode("n", "", "", func(n *corev1.Node) { n.Labels[excludeLabel] = "" }), false},
		{"the label, false", aNode("n", "", "", func(n *corev1.Node) { n.Labels[excludeLabel] = "false" }), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := memberOf(tt.node).counted; got != tt.want {
				t.Errorf("counted = %v, want %v", got, tt.want)
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
	ask("down0", at(31), true, 0)                 // the taint was removed by hand
	z.giveBack("down0", outcome.Rejected, at(31)) // and the next write failed
	ask("down0", at(31), true, 0)
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

func TestRateOfOneResumesAfterAStop(t *testing.T) {
	cfg := defaults()
	cfg.EvictionRate = 1
	z := testZones(cfg)
	z.fill("node", "z", down, 4, day)
	if ok, _ := z.acquire("node0", false, day); ok || !z.isStopped() {
		t.Fatalf("granted %v, stopped %v with every node down", ok, z.isStopped())
	}
	z.setNode("node3", "z", up, day)
	z.setNode("node2", "z", up, day)
	if diff := cmp.Diff([]bool{true, false}, z.toggles); diff != "" || z.isStopped() {
		t.Fatalf("stopped %v with a node back; toggles (-want +got):\n%s", z.isStopped(), diff)
	}
	want := day.Add(time.Second)
	if after := z.turns["node0"]; after != time.Second { // three of four down: partial, no rate; two of four: normal
		t.Errorf("queued after %v, want 1 s", after)
	}
	if ok, wait := z.acquire("node0", false, want); !ok {
		t.Errorf("refused a second after the stop, wait %v", wait)
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
		{"a taint was not written: its token is back", func(z *zonesBench) { z.giveBack("down0", outcome.Rejected, day) }, "down1", 0},
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

func TestConflictKeepsTheTurn(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 20, day)
	z.fill("down", "z", down, 2, day)
	z.acquire("down0", false, day)
	z.acquire("down1", false, day)
	for i := range 500 { // a conflict each 20 ms
		z.giveBack("down0", outcome.Conflict, day.Add(time.Duration(i)*20*time.Millisecond))
		if ok, wait := z.acquire("down0", false, day.Add(time.Duration(i)*20*time.Millisecond)); !ok {
			t.Fatalf("conflict %d: refused for %v, want the turn kept", i, wait)
		}
	}
	z.giveBack("down0", outcome.Conflict, day.Add(10*time.Second))
	if ok, wait := z.acquire("down1", false, day.Add(10*time.Second)); !ok {
		t.Errorf("the second in line is refused for %v after 10 s, want it tainted at the rate of the zone", wait)
	}
}

func TestUnansweredTaintKeepsTheTurnOnce(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 20, day)
	z.fill("down", "z", down, 3, day)
	for _, name := range []string{"down0", "down1", "down2"} {
		z.acquire(name, false, day)
	}
	z.giveBack("down0", outcome.Unknown, day)
	for i, want := range []string{"down0", "down1"} { // the second time, down0 waits at the end
		at := day.Add(time.Duration(10*(i+1)) * time.Second)
		if got := z.zones.zones["z"].waiting[0]; got != want {
			t.Fatalf("%s is the first in line, want %s", got, want)
		}
		if ok, wait := z.acquire(want, false, at); !ok {
			t.Fatalf("%s is refused for %v at its turn", want, wait)
		}
		z.giveBack(want, outcome.Unknown, at)
		z.acquire("down0", false, at)
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

func TestNodeMovesToAnotherZone(t *testing.T) {
	z := testZones(defaults())
	z.fill("a", "old", up, 3, day)
	z.fill("b", "new", up, 3, day)
	z.setNode("first", "old", down, day)
	z.setNode("second", "old", down, day)
	z.acquire("first", false, day)
	if ok, _ := z.acquire("second", false, day); ok {
		t.Fatal("the second got a token that was not there")
	}
	z.setNode("second", "new", down, day)
	if ok, wait := z.acquire("second", false, day); !ok {
		t.Errorf("refused for %v by the limiter of the zone it left", wait)
	}
	if got := len(z.zones.zones["old"].waiting); got != 0 {
		t.Errorf("%d nodes wait in the zone it left", got)
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
	if first, ok := z.turns["node0"]; !ok || first != 0 || z.turns["node1"].Round(time.Millisecond) != 10*time.Second {
		t.Errorf("thawed, the rate as it was: queues %v, want node0 at once and node1 after 10 s", z.turns)
	}
}

// The incremental counters against counting all over, on random changes.
func TestZonesAgainstCounting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	cfg := defaults()
	z := testZones(cfg)
	type place struct {
		zone string
		m    member
	}
	truth := map[string]place{}
	for range 20000 {
		name := fmt.Sprint("n", random.IntN(30))
		if random.IntN(8) == 0 {
			delete(truth, name)
			z.removeNode(name, day)
		} else {
			p := place{fmt.Sprint("z", random.IntN(3)), member{random.IntN(5) > 0, random.IntN(3) > 0}}
			truth[name] = p
			z.setNode(name, p.zone, p.m, day)
			if random.IntN(2) == 0 {
				z.acquire(name, false, day)
			}
		}
		tallies := map[string]tally{}
		for _, p := range truth {
			tl := tallies[p.zone]
			if p.m.counted && p.m.ready {
				tl.ready++
			} else if p.m.counted {
				tl.notReady++
			}
			tallies[p.zone] = tl
		}
		want, full, counted := map[string]zoneState{}, true, false
		for zone, tl := range tallies {
			want[zone] = tl.state(cfg)
			if tl.size() > 0 {
				counted = true
				full = full && tl.ready == 0
			}
		}
		if diff := cmp.Diff(want, z.states()); diff != "" || z.isStopped() != (counted && full) {
			t.Fatalf("stopped %v; states (-want +got):\n%s", z.isStopped(), diff)
		}
	}
}

func TestZoneGauges(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 3, day)
	z.setNode("down", "z", down, day)
	for _, tt := range []struct {
		name  string
		gauge *prometheus.GaugeVec
		want  float64
	}{
		{"health", z.metrics.zoneHealth, 75}, {"size", z.metrics.zoneSize, 4}, {"unhealthy", z.metrics.zoneUnhealthy, 1},
	} {
		if got := testutil.ToFloat64(tt.gauge.WithLabelValues("z")); got != tt.want {
			t.Errorf("%s = %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := testutil.ToFloat64(z.metrics.zoneState.WithLabelValues("z", "Normal")); got != 1 {
		t.Errorf("state gauge of Normal = %v", got)
	}
	z.removeNode("down", day)
	for i := range 3 {
		z.removeNode(fmt.Sprint("up", i), day)
	}
	if health, size := testutil.ToFloat64(z.metrics.zoneHealth.WithLabelValues("z")), testutil.ToFloat64(z.metrics.zoneSize.WithLabelValues("z")); health != 100 || size != 0 {
		t.Errorf("a zone that is gone shows health %v, size %v", health, size)
	}
}
