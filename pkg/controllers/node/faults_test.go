package node

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
)

func TestNewTermMarksNoPodOfANodeThatCameBack(t *testing.T) {
	objects := []runtime.Object{aNode("node", "zone", "Unknown"), aNode("live", "zone", "True"), aLease("live", epoch), aPod("pod", "node")}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.Freeze("nodes", true)
		b.post("node", "True") // the cache does not show the change
		b.term()
		b.pass(10 * time.Second)
		b.wantPods("True", "pod")
		b.Freeze("nodes", false)
		b.pass(5 * time.Second)
		b.wantPods("True", "pod")
	})
}

// A stale node cache is no outage of the API server.
func TestStaleNodeCacheIsNotBlindness(t *testing.T) {
	objects, live, dying := cluster(2, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.renewFor(30*time.Second, live...) // as a standby
		b.Freeze("nodes", true)
		b.edit("live0", func(n *corev1.Node) { n.Labels["new"] = "label" })
		b.term()
		b.renewFor(30*time.Second, live...)
		b.wantReady("Unknown", dying...)
		b.Freeze("nodes", false)
	})
}

func TestNodeMadeAnewWithinASecond(t *testing.T) {
	objects, live, _ := cluster(3, 2)
	inBubble(t, defaults(), append(objects, aPod("pod", "dying0")), func(b *bench) {
		b.term()
		b.renewFor(55*time.Second, live...)
		b.wantReady("Unknown", "dying0", "dying1")
		b.drainEvents()
		if err := b.CoreV1().Nodes().Delete(b.t.Context(), "dying0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(aNode("dying0", "zone", "True", func(n *corev1.Node) { n.UID = "another" }))
		b.pass(time.Millisecond) // the streams of nodes and pods are not ordered
		b.create(aPod("new", "dying0"))
		b.renewFor(45*time.Second, live...)
		b.wantReady("True", "dying0")
		b.wantTaints("dying0")
		b.wantPods("True", "new")
		b.renewFor(10*time.Second, live...)
		b.wantReady("Unknown", "dying0")
		const registered = "Normal RegisteredNode Node dying0 event: Registered Node dying0 in Controller"
		if n := len(slices.DeleteFunc(b.drainEvents(), func(e string) bool { return e != registered })); n != 1 {
			t.Errorf("registered %d times, want once", n)
		}
	})
}

// The API server rejects every patch of nodes for a while. The controller retries at a limited rate.
func TestNodePatchesRefused(t *testing.T) {
	for name, refusal := range fakeapi.NewRefusals("Node", "nodes", "dying0") {
		t.Run(name, func(t *testing.T) {
			objects, live, _ := cluster(3, 1)
			inBubble(t, defaults(), objects, func(b *bench) {
				b.Break(refusal, "patch nodes")
				b.term()
				b.renewFor(51*time.Second, live...)
				before := b.Count("patch nodes")
				b.renewFor(time.Minute, live...)
				if got := b.Count("patch nodes") - before; got == 0 || got > 60 {
					t.Errorf("%d patches in a minute, want 1 to 60", got)
				}
				b.Break(nil, "patch nodes")
				b.renewFor(20*time.Second, live...)
				b.wantTaints("dying0", silentTaints...)
				b.wantReady("True", live...)
			})
		})
	}
}

func TestRestartBesideDeadNodesRepeatsNothing(t *testing.T) {
	objects, live, dying := cluster(5, 2)
	inBubble(t, defaults(), append(objects, aPod("a", "dying0"), aPod("b", "dying1")), func(b *bench) {
		b.term()
		b.renewFor(80*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, dying); got != 2 {
			t.Fatalf("%d nodes tainted, want 2", got)
		}
		ours := func() int { return b.Count("patch") + b.Count("update nodes/status") }
		writes := ours()
		b.endTerm()
		b.term()
		b.renewFor(2*time.Minute, live...)
		if got := ours() - writes; got != 0 {
			t.Errorf("%d writes after a restart beside nodes that had been dealt with", got)
		}
	})
}

func TestGaugesRestWithTheTerm(t *testing.T) {
	objects, live, _ := cluster(3, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(55*time.Second, live...)
		m := b.controller.metrics
		zone := "region:\x00:zone"
		for name, is := range map[string]struct {
			gauge *prometheus.GaugeVec
			want  float64
		}{"health": {m.zoneHealth, 75}, "size": {m.zoneSize, 4}, "unhealthy": {m.zoneUnhealthy, 1}} {
			if got := testutil.ToFloat64(is.gauge.WithLabelValues(zone)); got != is.want {
				t.Errorf("%s = %v, want %v", name, got, is.want)
			}
		}
		if got := testutil.ToFloat64(m.zoneState.WithLabelValues(zone, "Normal")); got != 1 {
			t.Errorf("state gauge of Normal = %v", got)
		}
		m.suspended.Set(1)
		b.endTerm()
		for _, gauge := range []*prometheus.GaugeVec{m.zoneHealth, m.zoneSize, m.zoneUnhealthy, m.zoneState, m.pending} {
			if n := testutil.CollectAndCount(gauge); n != 0 {
				t.Errorf("%d series outside a term", n)
			}
		}
		if got := testutil.ToFloat64(m.suspended); got != 0 {
			t.Error("suspended outside a term")
		}
		if got := testutil.ToFloat64(m.evictions.WithLabelValues("region:\x00:zone")); got != 1 {
			t.Errorf("the counter of evictions is %v, want 1: it goes on", got)
		}
	})
}

func TestStandbyTakesOverAmidTheLine(t *testing.T) {
	objects, live, dying := cluster(20, 4)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(62*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, dying); got != 2 {
			t.Fatalf("%d nodes tainted, want 2", got)
		}
		times := map[string]time.Time{}
		for _, name := range dying {
			times[name] = b.taintedAt(name, corev1.TaintNodeUnreachable)
		}
		b.endTerm()
		b.pass(3 * time.Second)
		b.term()
		b.renewFor(30*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, dying); got != 4 {
			t.Errorf("%d nodes tainted 30 s into the new term, want 4", got)
		}
		for name, at := range times {
			if got := b.taintedAt(name, corev1.TaintNodeUnreachable); !at.IsZero() && !got.Equal(at) {
				t.Errorf("%s: TimeAdded moved from %v to %v", name, at, got)
			}
		}
	})
}
