package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestSilentNodeGoesTheWholeWay(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	objects := []runtime.Object{
		aNode("dead", "zone", corev1.ConditionTrue), aLease("dead", start),
		aNode("live", "zone", corev1.ConditionTrue), aLease("live", start),
		aPod("pod", "dead"),
	}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(50*time.Second, "live")
		if got := readiness(b.node("dead")); got != corev1.ConditionTrue {
			t.Fatalf("Ready after 50 s = %s, want True", got)
		}
		b.pass(500 * time.Millisecond)
		node := b.node("dead")
		if got := readiness(node); got != corev1.ConditionUnknown {
			t.Fatalf("Ready after 50.5 s = %s, want Unknown", got)
		}
		if !hasTaint(node, "unreachable:NoSchedule") || !hasTaint(node, unreachableNoExecute) {
			t.Errorf("taints = %v, want both unreachable ones", node.Spec.Taints)
		}
		if got := podReady(b.pod("pod")); got != corev1.ConditionFalse {
			t.Errorf("pod Ready = %s, want False", got)
		}
		if got := readiness(b.node("live")); got != corev1.ConditionTrue {
			t.Errorf("Ready of the live node = %s, want True", got)
		}
		b.post("dead", corev1.ConditionTrue)
		b.pass(time.Second)
		if node := b.node("dead"); len(node.Spec.Taints) > 0 {
			t.Errorf("taints after the node came back = %v, want none", node.Spec.Taints)
		}
	})
}
