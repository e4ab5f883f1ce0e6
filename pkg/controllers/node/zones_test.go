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
		z.put(fmt.Sprintf("%s%d", prefix, i), zone, m, now)
	}
}

var (
	up       = member{counted: true, ready: true}
	down     = member{counted: true}
	excluded = member{}
	nobody   = func(string) bool { return false }
)

func testZones(cfg Config) *zones { return newZones(cfg, newMetrics(prometheus.NewRegistry())) }

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
						z.put(fmt.Sprintf("%s/%d", zone, n), zone, m, day)
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
		ok, w, _ := z.ask(name, false, nobody, now)
		if ok != granted || (w-wait).Abs() > time.Millisecond {
			t.Errorf("%s asks at %v: granted %v, wait %v; want %v, %v", name, now.Sub(day), ok, w, granted, wait)
		}
	}
	ask("down0", at(0), true, 0)
	ask("down1", at(0), false, 10*time.Second)
	ask("down2", at(1), false, 19*time.Second)
	ask("down1", at(5), false, 5*time.Second) // asking again neither helps nor hurts
	e := z.withdraw("down1")                  // it came back
	if want := at(10); e.wake["down2"].Sub(want).Abs() > time.Millisecond {
		t.Errorf("next in line woken at %v, want %v", e.wake["down2"], want)
	}
	ask("down2", at(10), true, 0)
	ask("down3", at(20), true, 0)
	ask("down0", at(31), true, 0)       // its taint was removed by hand
	z.refund("down0", outcome.Rejected) // and writing the new one failed
	ask("down0", at(31), true, 0)
}

func TestZoneWithoutRateTaintsNobody(t *testing.T) {
	cfg := defaults()
	cfg.EvictionRate = 0
	z := testZones(cfg)
	z.fill("up", "z", up, 3, day)
	z.put("down", "z", down, day)
	if ok, wait, _ := z.ask("down", false, nobody, day.Add(time.Hour)); ok || wait != 0 {
		t.Errorf("granted %v, wait %v with rate 0", ok, wait)
	}
}

func TestRateOfOneResumesAfterAStop(t *testing.T) {
	cfg := defaults()
	cfg.EvictionRate = 1
	z := testZones(cfg)
	z.fill("node", "z", down, 4, day)
	if ok, _, _ := z.ask("node0", false, nobody, day); ok || !z.isStopped() {
		t.Fatalf("granted %v, stopped %v with every node down", ok, z.isStopped())
	}
	e := z.put("node3", "z", up, day)
	e2 := z.put("node2", "z", up, day)
	if !e.resumed || z.isStopped() {
		t.Fatalf("resumed %v, stopped %v with a node back", e.resumed, z.isStopped())
	}
	want := day.Add(time.Second)
	if at := e2.wake["node0"]; !at.Equal(want) { // three of four down: partial, no rate; two of four: normal
		t.Errorf("woken at %v, want %v", at, want)
	}
	if ok, wait, _ := z.ask("node0", false, nobody, want); !ok {
		t.Errorf("refused a second after the stop, wait %v", wait)
	}
}

func TestLookAhead(t *testing.T) {
	lagging := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	for _, tt := range []struct {
		name    string
		up      int
		lagging func(string) bool
		want    bool
	}{
		{"nobody lags", 9, nobody, true},
		{"two of nine lag: normal before and after", 9, lagging("up0", "up1"), true},
		{"five of nine lag: it would be partial", 9, lagging("up0", "up1", "up2", "up3", "up4"), false},
		{"all others lag: it would be full", 2, lagging("up0", "up1"), false},
		{"full already, the other zone lags: all would be", 0, lagging("other0"), false},
		{"full already, the other zone is well", 0, nobody, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z := testZones(defaults())
			z.fill("up", "z", up, tt.up, day)
			z.fill("other", "other", up, 1, day)
			z.put("down", "z", down, day)
			ok, wait, _ := z.ask("down", false, tt.lagging, day)
			if ok != tt.want || !ok && wait != time.Second {
				t.Errorf("granted %v, wait %v; want %v", ok, wait, tt.want)
			}
		})
	}
}

// Eleven kubelets of a hundred that renew seldom are late at any time, and they are others each time: the zone is always about to be
// disrupted and never is.
func TestLookAheadDoesNotRefuseForEver(t *testing.T) {
	z := testZones(defaults())
	z.fill("down", "z", down, 45, day)
	z.fill("up", "z", up, 55, day)
	var granted []time.Duration
	for at := time.Duration(0); at < 10*time.Minute && len(granted) < 3; at += time.Second {
		rotating := func(name string) bool {
			var i int
			_, err := fmt.Sscanf(name, "up%d", &i)
			return err == nil && (i+int(at/time.Second))%5 == 0
		}
		for i := range 3 {
			name := fmt.Sprint("down", i)
			if len(granted) > i { // it has its taint
				continue
			}
			if ok, _, _ := z.ask(name, false, rotating, day.Add(at)); ok {
				granted = append(granted, at)
				break
			}
		}
	}
	if want := []time.Duration{60 * time.Second, 70 * time.Second, 80 * time.Second}; !slices.Equal(granted, want) {
		t.Errorf("granted after %v, want %v: one grace after the first had its turn, which was after 10 s, then at the zone's rate", granted, want)
	}
}

// Suspensions come and go more often than a grace period passes.
func TestLookAheadIsNotStartedAnewBySuspensions(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 3, day)
	z.fill("down", "z", down, 2, day)
	lagging := func(name string) bool { return name == "up0" }
	for s := range 120 {
		now := day.Add(time.Duration(s) * time.Second)
		if s%30 == 29 {
			z.freeze(true, now)
			z.freeze(false, now)
		}
		if ok, _, _ := z.ask("down0", false, lagging, now); ok {
			if s < 50 {
				t.Errorf("granted after %d s, want a grace period", s)
			}
			return
		}
	}
	t.Error("refused for two minutes")
}

// The API server takes half a minute for each verdict: a zone of a hundred that is dead needs longer than a grace period to be counted so.
func TestLookAheadLastsAsLongAsVerdictsCome(t *testing.T) {
	z := testZones(defaults())
	z.fill("down", "z", down, 20, day)
	z.fill("up", "z", up, 80, day)
	lost := func(name string) bool { return true }
	for i := range 80 {
		now := day.Add(time.Duration(i) * 30 * time.Second)
		granted, _, _ := z.ask("down0", false, lost, now)
		if state := z.zones["z"].state; granted && state == zoneNormal {
			t.Fatalf("tainted at the rate of a normal zone when %d of 100 were known to be dead", 20+i)
		}
		z.put(fmt.Sprint("up", i), "z", down, now)
	}
	if state := z.zones["z"].state; state != zoneFull {
		t.Errorf("state %v in the end", state)
	}
}

// A line whose head leaves it, in whatever way, has a new head, and its turn is sooner than it was told.
func TestTheNextInLineIsWoken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(z *zones) effects
		wakes string
		at    time.Duration
	}{
		{"the head is deleted", func(z *zones) effects { return z.drop("down1", day.Add(time.Second)) }, "down2", 10 * time.Second},
		{"the head moves to another zone", func(z *zones) effects { return z.put("down1", "other", down, day.Add(time.Second)) }, "down2", 10 * time.Second},
		{"the head needs no taint any more", func(z *zones) effects { return z.withdraw("down1") }, "down2", 10 * time.Second},
		{"one in the middle is deleted: nothing changes for the head", func(z *zones) effects { return z.drop("down2", day) }, "", 0},
		{"a taint was not written: its token is back", func(z *zones) effects { return z.refund("down0", outcome.Rejected) }, "down1", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z := testZones(defaults())
			z.fill("up", "z", up, 20, day)
			z.fill("down", "z", down, 4, day)
			for i := range 4 { // the first is granted, the others stand in line
				z.ask(fmt.Sprint("down", i), false, nobody, day)
			}
			e := tt.leave(z)
			if tt.wakes == "" {
				if len(e.wake) > 0 {
					t.Errorf("wakes %v, want nobody", e.wake)
				}
				return
			}
			if at, ok := e.wake[tt.wakes]; !ok || at.Sub(day).Round(time.Millisecond) != tt.at {
				t.Errorf("wakes %v, want %s after %v", e.wake, tt.wakes, tt.at)
			}
		})
	}
}

func TestConflictKeepsTheTurn(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 20, day)
	z.fill("down", "z", down, 2, day)
	z.ask("down0", false, nobody, day)
	z.ask("down1", false, nobody, day)
	for i := range 500 { // a conflict each 20 ms
		z.refund("down0", outcome.Conflict)
		if ok, wait, _ := z.ask("down0", false, nobody, day.Add(time.Duration(i)*20*time.Millisecond)); !ok {
			t.Fatalf("conflict %d: refused for %v, want the turn kept", i, wait)
		}
	}
	z.refund("down0", outcome.Conflict)
	if ok, wait, _ := z.ask("down1", false, nobody, day.Add(10*time.Second)); !ok {
		t.Errorf("the second in line is refused for %v after 10 s, want it tainted at the rate of the zone", wait)
	}
}

func TestUnansweredTaintKeepsTheTurnOnce(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 20, day)
	z.fill("down", "z", down, 3, day)
	for _, name := range []string{"down0", "down1", "down2"} {
		z.ask(name, false, nobody, day)
	}
	z.refund("down0", outcome.Unknown)
	for i, want := range []string{"down0", "down1"} { // the second time, down0 waits behind the others
		at := day.Add(time.Duration(10*(i+1)) * time.Second)
		if got := z.zones["z"].waiting.first(); got != want {
			t.Fatalf("%s is the first in line, want %s", got, want)
		}
		if ok, wait, _ := z.ask(want, false, nobody, at); !ok {
			t.Fatalf("%s is refused for %v at its turn", want, wait)
		}
		z.refund(want, outcome.Unknown)
		z.ask("down0", false, nobody, at)
	}
}

func TestLine(t *testing.T) {
	l := newWaitlist()
	for i, name := range []string{"a", "b", "c", "d"} {
		if got := l.join(name); got != i {
			t.Errorf("%s: %d before it, want %d", name, got, i)
		}
	}
	if l.join("c") != 2 || l.len() != 4 {
		t.Errorf("who is in line keeps its place: %v", l.all())
	}
	if !l.leave("b") || l.leave("b") || l.leave("nobody") {
		t.Error("leave tells who was in line")
	}
	if diff := cmp.Diff([]string{"a", "c", "d"}, l.all()); diff != "" {
		t.Errorf("in line (-want +got):\n%s", diff)
	}
	l.leave("a")
	if l.first() != "c" || l.join("d") != 1 || l.join("b") != 2 {
		t.Errorf("first %s, line %v", l.first(), l.all())
	}
	for _, name := range []string{"c", "d", "b"} {
		l.leave(name)
	}
	if l.first() != "" || l.len() != 0 || l.join("e") != 0 {
		t.Errorf("first %q of a line that was empty, %d in it", l.first(), l.len())
	}
}

// What changes for one zone while the others change too must not look, half-way, as if all had failed.
func TestThawDoesNotStopAndResume(t *testing.T) {
	z := testZones(defaults())
	z.put("a", "1", down, day)
	z.put("b", "2", up, day)
	z.freeze(true, day)
	z.put("a", "1", up, day)
	z.put("b", "2", down, day)
	if e := z.freeze(false, day); e.all || e.resumed || z.isStopped() {
		t.Errorf("one zone has recovered and the other failed: all %v, resumed %v, stopped %v", e.all, e.resumed, z.isStopped())
	}
	if e := z.put("a", "2", up, day); e.all || e.resumed {
		t.Error("the only node that is well moves to another zone, and everything is stopped and resumed")
	}
}

func TestFrozenZonesTaintWhoHasBeenGivenAllTime(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 10, day)
	z.fill("down", "z", down, 2, day)
	z.freeze(true, day)
	if ok, _, _ := z.ask("down0", false, nobody, day); ok {
		t.Error("frozen: granted")
	}
	z.withdraw("down0")
	if ok, _, _ := z.ask("down1", true, nobody, day); !ok {
		t.Error("a node that no suspension holds back is refused while zones are frozen")
	}
}

func TestNodeMovesToAnotherZone(t *testing.T) {
	z := testZones(defaults())
	z.fill("a", "old", up, 3, day)
	z.fill("b", "new", up, 3, day)
	z.put("first", "old", down, day)
	z.put("second", "old", down, day)
	z.ask("first", false, nobody, day)
	if ok, _, _ := z.ask("second", false, nobody, day); ok {
		t.Fatal("the second got a token that was not there")
	}
	z.put("second", "new", down, day)
	if ok, wait, _ := z.ask("second", false, nobody, day); !ok {
		t.Errorf("refused for %v by the limiter of the zone it left", wait)
	}
	if got := z.zones["old"].waiting.len(); got != 0 {
		t.Errorf("%d nodes wait in the zone it left", got)
	}
}

func TestFreezeKeepsStatesAndForgetsNothing(t *testing.T) {
	z := testZones(defaults())
	z.fill("node", "z", up, 10, day)
	z.put("node0", "z", down, day)
	z.ask("node0", false, nobody, day) // the token is gone
	z.freeze(true, day)
	z.put("node1", "z", down, day)
	if ok, _, _ := z.ask("node1", false, nobody, day.Add(time.Hour)); ok {
		t.Error("frozen: a taint was granted")
	}
	z.fill("node", "z", down, 10, day)
	if z.isStopped() || z.states()["z"] != zoneNormal {
		t.Errorf("frozen: stopped %v, states %v", z.isStopped(), z.states())
	}
	z.fill("node", "z", up, 9, day)
	e := z.freeze(false, day)
	if z.isStopped() || e.all {
		t.Errorf("after the freeze: stopped %v, effects %+v", z.isStopped(), e)
	}
	if ok, wait, _ := z.ask("node9", false, nobody, day.Add(time.Second)); ok {
		t.Errorf("after the freeze the limiter is new: granted after 1 s (wait %v)", wait)
	}
}

// A node that asks between the end of the suspension and the tick that notices has no other event to come: nobody but the thaw wakes it.
func TestThawWakesThoseWhoAskedWhileFrozen(t *testing.T) {
	z := testZones(defaults())
	z.fill("node", "z", up, 10, day)
	z.put("node0", "z", down, day)
	z.put("node1", "z", down, day)
	z.freeze(true, day)
	for _, name := range []string{"node0", "node1"} {
		if ok, wait, _ := z.ask(name, false, nobody, day); ok || wait != 0 {
			t.Fatalf("frozen: %s granted %v, wait %v; want a promise to be woken", name, ok, wait)
		}
	}
	e := z.freeze(false, day)
	if first, second := e.wake["node0"], e.wake["node1"]; first != day || second.Sub(day).Round(time.Millisecond) != 10*time.Second {
		t.Errorf("thawed, the rate as it was: wakes %v, want node0 at once and node1 10 s later", e.wake)
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
			z.drop(name, day)
		} else {
			p := place{fmt.Sprint("z", random.IntN(3)), member{random.IntN(5) > 0, random.IntN(3) > 0}}
			truth[name] = p
			z.put(name, p.zone, p.m, day)
			if random.IntN(2) == 0 {
				z.ask(name, false, nobody, day)
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
	z.put("down", "z", down, day)
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
	z.drop("down", day)
	for i := range 3 {
		z.drop(fmt.Sprint("up", i), day)
	}
	if health, size := testutil.ToFloat64(z.metrics.zoneHealth.WithLabelValues("z")), testutil.ToFloat64(z.metrics.zoneSize.WithLabelValues("z")); health != 100 || size != 0 {
		t.Errorf("a zone that is gone shows health %v, size %v", health, size)
	}
}
