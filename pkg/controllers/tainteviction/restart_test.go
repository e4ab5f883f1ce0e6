package tainteviction

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A restart keeps the times that the API server knows. A standby keeps the times of its own observations.
func TestRestart(t *testing.T) {
	const window = 50 * time.Second
	tolerant := func() *corev1.Pod {
		return aPod("p", tolerates("t1", 3000), tolerates(corev1.TaintNodeUnreachable, 300))
	}
	inBubble(t, "the time before the restart counts", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant())
		w.manager(window)()
		w.Until(1000 * time.Second)
		defer w.manager(window)()
		w.Until(4000 * time.Second)
		w.mustBeDeletedAt("p", 3000*time.Second)
	})
	inBubble(t, "a pod bound long after the taint has its full time", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", 2*time.Hour)), tolerant())
		w.update("p", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.Begin.Add(-1001 * time.Second)),
			}}
		})
		defer w.manager(window)()
		w.Until(4000 * time.Second)
		w.mustBeDeletedAt("p", 2000*time.Second)
	})
	inBubble(t, "a taint without time dates from when the standby saw it", func(t *testing.T) {
		taint := noExecuteTaint("t1")
		w := newWorld(t, node1(corev1.ConditionTrue, taint), tolerant())
		c, stop := w.standby(window)
		defer stop()
		w.Until(1000 * time.Second)
		defer w.run(c)()
		w.Until(4000 * time.Second)
		w.mustBeDeletedAt("p", 3000*time.Second)
	})
	inBubble(t, "an hour away while the node dies, is tainted and recovers", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue), tolerant(), aPod("q"))
		stop := w.manager(window)
		w.Until(time.Minute)
		w.node(func(n *corev1.Node) {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
			n.Spec.Taints = []corev1.Taint{nowTaint(corev1.TaintNodeUnreachable)}
		})
		synctest.Wait()
		stop()
		w.mustBeDeletedAt("q", time.Minute) // the pod has no toleration
		w.Until(time.Hour)
		w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		defer w.manager(window)()
		w.Until(2 * time.Hour)
		w.mustLive("p")
	})
	inBubble(t, "a second term of the same process knows nothing of the first", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant())
		c, stop := w.standby(window)
		defer stop()
		w.run(c)()
		if got := testutil.ToFloat64(c.metrics.pending); got != 0 {
			t.Errorf("%v evictions pending outside a term", got)
		}
		w.Until(3001 * time.Second)
		w.mustLive("p")
		defer w.run(c)()
		w.mustBeDeletedAt("p", 3001*time.Second)
	})
}

// Taints of node health are not trusted before a term has looked around.
func TestTrustWindow(t *testing.T) {
	const window = 50 * time.Second
	unreachable := corev1.TaintNodeUnreachable
	sec := time.Second
	type deletes = map[string]time.Duration
	cluster := func(ready corev1.ConditionStatus, taints ...corev1.Taint) objects {
		return objects{node1(ready, taints...), aPod("p", tolerates(unreachable, 300))}
	}
	old := agoTaint(unreachable, time.Hour)
	becomes := func(ready corev1.ConditionStatus) func(*world) {
		return func(w *world) { w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = ready }) }
	}
	tainted := func(w *world) {
		w.Put(aPod("intolerant"))
		w.taint(nowTaint(unreachable))
	}
	for _, s := range []scenario{
		{"pods of a dead node leave at the end of the window", cluster("Unknown", old), nil, deletes{"p": window}},
		{"a later deadline stays", cluster("Unknown", agoTaint(unreachable, sec)), nil, deletes{"p": 300 * sec}},
		{"pods of a node that is Ready stay", cluster("True", old), nil, deletes{}},
		{"pods of a node that becomes Ready within the window stay", cluster("Unknown", old), map[time.Duration]func(*world){49 * sec: becomes("True")}, deletes{}},
		{"a later taint waits for the end of the window", cluster("Unknown"), map[time.Duration]func(*world){20 * sec: tainted}, deletes{"intolerant": window, "p": 320 * sec}},
		{"a taint after the window does not wait", cluster("Unknown"), map[time.Duration]func(*world){70 * sec: tainted}, deletes{"intolerant": 70 * sec, "p": 370 * sec}},
		{"a node with an old taint becomes Unknown after the window", cluster("True", old), map[time.Duration]func(*world){60 * sec: becomes("Unknown")}, deletes{"p": 60 * sec}},
		{"a taint of a user does not wait", cluster("Unknown", old, agoTaint("user", time.Hour)), nil, deletes{"p": 0}},
	} {
		s.run(t, window)
	}
}
