package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeMadeAnewStartsAfresh(t *testing.T) {
	objects, live, _ := cluster(1, 0)
	inBubble(t, defaults(), append(objects, aNode("node", "zone", "True")), func(b *bench) {
		b.term()
		b.renewFor(45*time.Second, live...)
		if err := b.CoreV1().Nodes().Delete(b.t.Context(), "node", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(aNode("node", "zone", "", func(n *corev1.Node) {
			n.UID, n.CreationTimestamp = "another", metav1.Now()
		}))
		b.renewFor(59*time.Second, live...)
		if got := readiness(b.Node("node")); got != "" {
			t.Errorf("Ready of a node 59 s old = %s: it inherited the silence of an earlier one", got)
		}
		b.renewFor(2*time.Second, live...)
		if got := readiness(b.Node("node")); got != corev1.ConditionUnknown {
			t.Errorf("Ready of a node 61 s old = %q, want Unknown", got)
		}
	})
}

func TestTaintsSurviveANewTerm(t *testing.T) {
	old := metav1.NewTime(epoch.Add(-time.Hour))
	objects, live, _ := cluster(3, 0)
	objects = append(objects, aNode("dead", "zone", "Unknown", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{
			{Key: corev1.TaintNodeUnreachable, Effect: noSchedule, TimeAdded: &old}, {Key: corev1.TaintNodeUnreachable, Effect: noExec, TimeAdded: &old},
		}
	}))
	inBubble(t, defaults(), objects, func(b *bench) {
		for range 2 {
			b.term()
			b.renewFor(time.Minute, live...)
			b.endTerm()
		}
		if got := b.Count("patch nodes"); got != 0 {
			t.Errorf("%d patches of a node whose taints were right", got)
		}
		for _, taint := range b.Node("dead").Spec.Taints {
			if !taint.TimeAdded.Equal(&old) {
				t.Errorf("time of %s:%s = %v, want %v", taint.Key, taint.Effect, taint.TimeAdded, old)
			}
		}
	})
}
