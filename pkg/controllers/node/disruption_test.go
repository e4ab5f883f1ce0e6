package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestNoTaintStaysWhileEverythingIsDown(t *testing.T) {
	objects, live, _ := cluster(1, 2)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(55*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, []string{"dying0", "dying1"}); got != 1 {
			t.Fatalf("%d nodes tainted, want 1", got)
		}
		b.pass(51 * time.Second) // the last node falls silent
		all := []string{"dying0", "dying1", "live0"}
		if got := b.withStatus("Unknown", all); got != 3 {
			t.Fatalf("%d nodes Unknown, want 3", got)
		}
		if got := b.tainted(unreachableNoExecute, all); got != 0 {
			t.Errorf("%d nodes tainted while all are down", got)
		}
		b.edit("dying1", func(n *corev1.Node) { // a taint that another client adds
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: noExec})
		})
		b.pass(time.Second)
		if got := b.tainted(unreachableNoExecute, all); got != 0 {
			t.Errorf("%d nodes tainted after one was put while all are down", got)
		}
		b.post("live0", "True")
		b.pass(5 * time.Second)
		if got := b.tainted(unreachableNoExecute, all); got != 0 {
			t.Error("tainted at once after the stop")
		}
		b.renewFor(6*time.Second, "live0")
		if got := b.tainted(unreachableNoExecute, all); got != 1 {
			t.Errorf("%d nodes tainted 11 s after the stop, want 1", got)
		}
	})
}

func TestReadyNodesStartAnewAfterAStop(t *testing.T) {
	objects := []runtime.Object{
		aNode("a", "1", "False"), aLease("a", epoch), aNode("b", "2", "True"), aLease("b", epoch), aNode("c", "2", "True"), aLease("c", epoch),
	}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(30*time.Second, "a", "c") // b silent for 30 s
		b.post("b", "False")                 // sign of life at 30
		b.renewFor(10*time.Second, "a", "c")
		b.post("c", "False") // all down
		if !b.controller.zones.isStopped() {
			t.Fatal("not stopped")
		}
		b.edit("b", func(n *corev1.Node) { conditionOf(n, corev1.NodeReady).Status = "True" })
		r, _ := b.controller.health.of("b", "")
		if b.controller.zones.isStopped() || !r.heartbeat.seen.Equal(time.Now()) {
			t.Errorf("stopped %v, b seen at %v, want now (%v)", b.controller.zones.isStopped(), r.heartbeat.seen.Sub(epoch), time.Since(epoch))
		}
		if r, _ := b.controller.health.of("a", ""); r.heartbeat.seen.Equal(time.Now()) {
			t.Error("a, which is not Ready, was given a new start too")
		}
	})
}

func TestZoneOfExcludedNodesIsAZone(t *testing.T) {
	exclude := func(n *corev1.Node) { n.Labels[excludeLabel] = "" }
	objects := []runtime.Object{aNode("dead", "zone", "Unknown", exclude), aNode("dead2", "zone", "Unknown", exclude), aNode("live", "zone", "True", exclude), aLease("live", epoch)}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(time.Second, "live")
		dead := []string{"dead", "dead2"}
		if got := b.tainted(unreachableNoExecute, dead); got != 1 {
			t.Errorf("%d nodes tainted at once, want 1", got)
		}
		patches := b.Count("patch nodes")
		b.renewFor(8*time.Second, "live")
		if got := b.tainted(unreachableNoExecute, dead); got != 1 {
			t.Errorf("%d nodes tainted after 9 s, want 1", got)
		}
		b.renewFor(2*time.Second, "live")
		if got := b.tainted(unreachableNoExecute, dead); got != 2 {
			t.Errorf("%d nodes tainted after 11 s, want 2", got)
		}
		b.renewFor(time.Minute, "live")
		if got := b.Count("patch nodes"); got != patches+1 {
			t.Errorf("%d more patches, want 1: nobody is tainted again", got-patches)
		}
	})
}

func TestZoneThatDiesAtOnce(t *testing.T) {
	objects, _, dying := cluster(0, 100)
	objects = append(objects, aNode("other", "other", "True"), aLease("other", epoch))
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		// The last renewals are spread over ten seconds, as in life.
		for i := range 100 {
			b.renew(dying[i])
			b.pass(100 * time.Millisecond)
		}
		b.renew("other")
		b.renewFor(40*time.Second, "other")
		for range 110 {
			if state, n := b.controller.zones.states()["region:\x00:zone"], b.tainted(unreachableNoExecute, dying); state == zoneNormal && n > 1 {
				t.Fatalf("%d nodes tainted NoExecute while the zone was still Normal, want 1 in ten seconds", n)
			}
			b.pass(100 * time.Millisecond)
		}
		if got := b.withStatus("Unknown", dying); got != 100 {
			t.Fatalf("%d of 100 nodes Unknown", got)
		}
		b.renewFor(35*time.Second, "other")
		if got := b.tainted(unreachableNoExecute, dying); got < 3 || got > 7 {
			t.Errorf("%d nodes tainted 35 s after the zone failed, want one each 10 s", got)
		}
	})
}
