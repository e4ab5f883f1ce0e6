package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
)

// TestTaintsOfZones checks the seconds of the NoExecute taints in each zone. Column nodes lists the nodes of each
// zone: "+" Ready, "-" not Ready, "x" and "y" the same and excluded from the counts. Column steps lists changes as
// SECOND:NODE:CHANGE: "+" Ready, "-" not Ready, "x" deleted, or the name of another zone. The rates are one taint
// per 8 s, and one per 16 s in a large zone with a partial disruption.
func TestTaintsOfZones(t *testing.T) {
	zone := func(ready, notReady int) string {
		return "a:" + strings.Repeat("+", ready) + strings.Repeat("-", notReady)
	}
	threshold := func(f float32) func(*Config) { return func(c *Config) { c.UnhealthyZoneThreshold = f } }
	evictionRate := func(f float32) func(*Config) { return func(c *Config) { c.EvictionRate = f } }
	for _, tt := range []struct {
		name, nodes, steps, want string
		edit                     func(*Config)
	}{
		{"normal zone", zone(10, 4), "", "a@00 a@08 a@16 a@24", nil},
		{"zones do not wait for each other", "a:+-- b:+--", "", "a@00 a@08 b@00 b@08", nil},
		{"two nodes are no partial disruption", zone(1, 2), "", "a@00 a@08", nil},
		{"partial disruption of a small zone", zone(5, 45), "", "", nil},
		{"partial disruption of a large zone", zone(5, 46), "", "a@00 a@16 a@32", nil},
		{"just below the threshold", zone(10, 10), "", "a@00 a@08 a@16 a@24 a@32", nil},
		{"exactly the threshold", zone(9, 11), "", "", nil},
		{"threshold above 1", zone(1, 9), "", "a@00 a@08 a@16 a@24 a@32", threshold(100)},
		{"threshold 0, three nodes", zone(10, 3), "", "", threshold(0)},
		{"threshold 0, two nodes", zone(10, 2), "", "a@00 a@08", threshold(0)},
		{"full disruption of one zone of two", "a:--- b:+", "", "a@00 a@08 a@16", nil},
		{"full disruption of all zones", "a:-- b:-", "", "", nil},
		{"full disruption with a threshold above 1", zone(0, 9), "", "", threshold(100)},
		{"an excluded Ready node does not count", "a:-x", "", "", nil},
		{"a zone of excluded nodes is normal", "a:xyy b:+", "", "a@00 a@08", nil},
		{"a zone of excluded nodes is no other zone for pods", "a:- b:xy", "", "", nil},
		{"all nodes are excluded", "a:xyy", "", "a@00 a@08", nil},
		{"rate 0", zone(3, 1), "", "", evictionRate(0)},
		{"smallest rate", zone(3, 2), "", "a@00", evictionRate(1e-45)},
		{"one zone of two recovers", "a:- b:-", "10:b0:+", "a@18", nil},
		{"one zone of two recovers, rate 1", "a:- b:-", "10:b0:+", "a@11", evictionRate(1)},
		{"the last Ready node fails: the taint is removed", "a:+-", "10:a0:-", "", nil},
		{"a partial disruption ends", zone(2, 3), "10:a2:+", "a@18 a@26", nil},
		{"a partial disruption begins", zone(2, 2), "4:a1:-", "a@00", nil},
		{"a large zone in partial disruption fails", zone(5, 46) + " b:+", "4:a0:- 4:a1:- 4:a2:- 4:a3:- 4:a4:-", "a@00 a@12 a@20 a@28 a@36", nil},
		{"the first node of the line recovers", "a:+++++-", "1:a0:- 2:a1:- 3:a0:+", "a@00 a@08", nil},
		{"the first node of the line is deleted", "a:+++++-", "1:a0:- 2:a1:- 3:a0:x", "a@00 a@08", nil},
		{"the first node of the line moves", "a:+++++-", "1:a0:- 2:a1:- 3:a0:b", "a@00 a@08 b@03", nil},
		{"the last node of a zone moves", "a:++++ b:-", "3:b0:a", "a@00", nil},
		{"the second node of the line is deleted", "a:+++++-", "1:a0:- 2:a1:- 3:a1:x", "a@00 a@08", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := defaults()
			cfg.EvictionRate, cfg.SecondaryEvictionRate = 1./8, 1./16
			if tt.edit != nil {
				tt.edit(&cfg)
			}
			var objects []runtime.Object
			for _, zone := range strings.Fields(tt.nodes) {
				key, states, _ := strings.Cut(zone, ":")
				for i, state := range states {
					status := map[rune]corev1.ConditionStatus{'+': "True", 'x': "True", '-': "False", 'y': "False"}[state]
					node := aNode(fmt.Sprint(key, i), key, status)
					if state == 'x' || state == 'y' {
						node.Labels[excludeLabel] = ""
					}
					objects = append(objects, node)
				}
			}
			inBubble(t, cfg, objects, func(b *bench) {
				b.term()
				for _, step := range strings.Fields(tt.steps) {
					var at int
					var name, change string
					if _, err := fmt.Sscan(strings.ReplaceAll(step, ":", " "), &at, &name, &change); err != nil {
						t.Fatal(err)
					}
					b.pass(time.Until(epoch.Add(time.Duration(at) * time.Second)))
					switch change {
					case "+":
						b.post(name, corev1.ConditionTrue)
					case "-":
						b.post(name, corev1.ConditionFalse)
					case "x":
						b.Remove("nodes", "", name)
					default:
						b.edit(name, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = change })
					}
				}
				b.pass(time.Until(epoch.Add(39 * time.Second))) // less than a grace period
				nodes, err := b.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				fakeapi.NoError(t, err)
				var got []string
				for _, node := range nodes.Items {
					for _, taint := range node.Spec.Taints {
						if followsReady(taint) {
							got = append(got, fmt.Sprintf("%s@%02.0f", node.Labels[corev1.LabelTopologyZone], taint.TimeAdded.Sub(epoch).Seconds()))
						}
					}
				}
				slices.Sort(got)
				fakeapi.Want(t, "times of taints", strings.Join(got, " "), tt.want)
			})
		})
	}
}

func TestZoneOf(t *testing.T) {
	const zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
	for _, tt := range []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{zone: "z", region: "r"}, "r:\x00:z"},
		{map[string]string{region: "r"}, "r:\x00:"},
		{map[string]string{
			zone: "z", "failure-domain.beta.kubernetes.io/zone": "bz", region: "r", "failure-domain.beta.kubernetes.io/region": "br",
		}, "br:\x00:bz"},
		{map[string]string{zone: "z", "failure-domain.beta.kubernetes.io/zone": ""}, ""},
	} {
		fakeapi.Want(t, fmt.Sprint("zone of ", tt.labels), zoneOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}}), tt.want)
	}
}

// During an outage of the API server the states, the line and the bucket of a zone stay as they are.
func TestFreeze(t *testing.T) {
	up, down := place{counted: true, ready: true}, place{counted: true}
	now := epoch
	turns, toggles := map[string]time.Duration{}, 0
	z := newZones(defaults(), newMetrics(prometheus.NewRegistry()), func(name string, after time.Duration) {
		turns[name] = after.Round(time.Millisecond)
	}, func(bool) { toggles++ })
	set := func(p place, names ...string) {
		for _, name := range names {
			p.zone = "zone of " + name[:1]
			z.setNode(name, p, now)
		}
	}
	set(up, "a0", "a1", "a2", "a3", "b0")
	set(down, "a3", "a4", "a5")
	granted, _ := z.acquire("a3", false, now)
	fakeapi.Want(t, "token for the first node", granted, true)
	z.freeze(true, now)
	set(down, "a0", "a1", "a2", "b0")
	for _, name := range []string{"a4", "a5"} {
		if granted, wait := z.acquire(name, false, now); granted || wait != 0 {
			t.Errorf("frozen: %s granted %v, wait %v, want a node that waits for its turn", name, granted, wait)
		}
	}
	set(up, "a0", "a1", "a2")
	z.freeze(false, now)
	if z.isStopped() || toggles > 0 {
		t.Errorf("stopped %v, %d toggles after one zone has failed and the other has recovered", z.isStopped(), toggles)
	}
	fakeapi.WantEqual(t, "turns after the outage", turns, map[string]time.Duration{"a4": 10 * time.Second})
	z.freeze(true, now)
	now = now.Add(10 * time.Second)
	granted, _ = z.acquire("a4", true, now)
	fakeapi.Want(t, "token for a node without extra time while frozen", granted, true)
	z.freeze(false, now)
	fakeapi.WantEqual(t, "turns after the second outage", turns, map[string]time.Duration{"a4": 10 * time.Second, "a5": 10 * time.Second})
}

func TestNoTaintStaysWhileAllZonesAreDown(t *testing.T) {
	inCluster(t, 1, 2, nil, func(b *bench, live, dying []string) {
		all := slices.Concat(live, dying)
		tainted := func(want int, when string) {
			t.Helper()
			fakeapi.Want(t, "tainted nodes "+when, b.tainted(unreachableNoExecute, all), want)
		}
		b.term()
		b.renewFor(55*time.Second, live...)
		tainted(1, "while one node lives")
		b.pass(51 * time.Second) // the last node falls silent
		b.wantReady("Unknown", all...)
		tainted(0, "while all are down")
		b.edit("dying1", func(n *corev1.Node) { // a taint that another client adds
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: noExec})
		})
		b.pass(time.Second)
		tainted(0, "while all are down, after another client added one")
		b.post("live0", "True")
		b.pass(5 * time.Second)
		tainted(0, "5 s after the stop")
		b.renewFor(6*time.Second, "live0")
		tainted(1, "11 s after the stop")
	})
}

func TestReadyNodesGetNewGracePeriodAfterAStop(t *testing.T) {
	objects := []runtime.Object{
		aNode("a", "1", "False"), aLease("a", epoch), aNode("b", "2", "True"), aLease("b", epoch), aNode("c", "2", "True"), aLease("c", epoch),
	}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(30*time.Second, "a", "c") // b silent for 30 s
		b.post("b", "False")                 // sign of life at 30
		b.renewFor(10*time.Second, "a", "c")
		b.post("c", "False") // all down
		fakeapi.Want(t, "stopped", b.controller.zones.isStopped(), true)
		b.edit("b", func(n *corev1.Node) { readyCondition(n).Status = "True" })
		r, _ := b.controller.health.get("b", "")
		fakeapi.Want(t, "stopped", b.controller.zones.isStopped(), false)
		fakeapi.WantEqual(t, "last heartbeat of b", r.heartbeat.seen, time.Now())
		if r, _ := b.controller.health.get("a", ""); r.heartbeat.seen.Equal(time.Now()) {
			t.Error("a, which is not Ready, was given a new start too")
		}
	})
}

const (
	noSchedule = corev1.TaintEffectNoSchedule
	noExec     = corev1.TaintEffectNoExecute
)

// parseTaints returns taints written as KEY:EFFECT, KEY:EFFECT@now or KEY:EFFECT@old, the key without the common
// prefix.
func parseTaints(text string) (taints []corev1.Taint) {
	effects := map[string]corev1.TaintEffect{"NS": noSchedule, "NE": noExec, "PNS": corev1.TaintEffectPreferNoSchedule}
	for _, word := range strings.Fields(text) {
		rest, added, _ := strings.Cut(word, "@")
		key, effect, _ := strings.Cut(rest, ":")
		taint := corev1.Taint{Key: "node.kubernetes.io/" + key, Effect: effects[effect]}
		switch added {
		case "now":
			taint.TimeAdded = &metav1.Time{Time: day}
		case "old":
			taint.TimeAdded = &metav1.Time{Time: day.Add(-time.Hour)}
		}
		taints = append(taints, taint)
	}
	return taints
}

func TestDesiredTaints(t *testing.T) {
	keep, none, unreachable := noExecute{keep: true}, noExecute{}, noExecute{key: corev1.TaintNodeUnreachable}
	for _, tt := range []struct {
		name, conditions, have, taints string
		want                           noExecute
	}{
		{"Ready", "Ready=True", "", "", none},
		{"not Ready", "Ready=False", "", "not-ready:NS@now", keep},
		{"Unknown", "Ready=Unknown", "", "unreachable:NS@now", keep},
		{"all pressures", "Ready=True NetworkUnavailable=True DiskPressure=True MemoryPressure=True PIDPressure=True", "",
			"memory-pressure:NS@now disk-pressure:NS@now pid-pressure:NS@now network-unavailable:NS@now", none},
		{"an Unknown pressure is no pressure", "Ready=Unknown DiskPressure=Unknown", "disk-pressure:NS@old", "unreachable:NS@now", keep},
		{"cordoned", "Ready=True unschedulable=True", "", "unschedulable:NS@now", none},
		{"a correct taint keeps its time and place", "Ready=False DiskPressure=True", "disk-pressure:NS@old user:NS",
			"disk-pressure:NS@old user:NS not-ready:NS@now", keep},
		{"the same key with another effect", "Ready=True", "not-ready:PNS", "not-ready:PNS", none},
		{"a key of ours that a user added", "Ready=True", "memory-pressure:NS user:NS", "user:NS", none},
		{"no condition: only NoExecute stays", "", "not-ready:NS@old not-ready:NE@old", "not-ready:NE@old", keep},
		{"NoExecute is added", "Ready=Unknown", "", "unreachable:NS@now unreachable:NE@now", unreachable},
		{"a swap keeps the time", "Ready=Unknown", "not-ready:NS@old not-ready:NE@old", "unreachable:NS@now unreachable:NE@old", unreachable},
		{"a swap of a taint without a time", "Ready=Unknown", "unreachable:NS@old not-ready:NE", "unreachable:NS@old unreachable:NE@now", unreachable},
		{"both NoExecute taints: one goes", "Ready=Unknown", "unreachable:NS@old unreachable:NE@old not-ready:NE@now",
			"unreachable:NS@old unreachable:NE@old", unreachable},
		{"recovered", "Ready=True", "unreachable:NS@old user:NS unreachable:NE@old out-of-service:NE@old", "user:NS out-of-service:NE@old", none},
		{"stopped: NoSchedule stays", "Ready=Unknown", "unreachable:NS@old unreachable:NE@old", "unreachable:NS@old", none},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: parseTaints(tt.have)}}
		for _, condition := range strings.Fields(tt.conditions) {
			kind, status, _ := strings.Cut(condition, "=")
			if node.Spec.Unschedulable = kind == "unschedulable"; !node.Spec.Unschedulable {
				node.Status.Conditions = append(node.Status.Conditions,
					corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status)})
			}
		}
		got, changed := desiredTaints(node, tt.want, metav1.NewTime(day))
		if diff := cmp.Diff(parseTaints(tt.taints), got); diff != "" || changed != (tt.taints != tt.have) {
			t.Errorf("%s: changed = %v; taints (-want +got):\n%s", tt.name, changed, diff)
		}
		node.Spec.Taints = got
		if _, again := desiredTaints(node, tt.want, metav1.NewTime(day.Add(time.Hour))); again {
			t.Errorf("%s: the desired taints are changed again", tt.name)
		}
	}
}

func TestMissingLabels(t *testing.T) {
	const os, arch, betaOS, betaArch = "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"
	type labels = map[string]string
	for _, tt := range []struct {
		name       string
		have, want labels
	}{
		{"no stable labels", labels{"topology.kubernetes.io/region": "r", betaOS: "windows"}, labels{}},
		{"beta labels missing", labels{os: "linux", arch: "amd64"}, labels{betaOS: "linux", betaArch: "amd64"}},
		{"beta labels different", labels{os: "linux", arch: "amd64", betaOS: "windows", betaArch: "arm"}, labels{betaOS: "linux", betaArch: "amd64"}},
		{"one of two equal", labels{os: "linux", arch: "amd64", betaOS: "linux"}, labels{betaArch: "amd64"}},
	} {
		fakeapi.WantEqual(t, tt.name+": missing labels", missingLabels(tt.have), tt.want)
	}
}
