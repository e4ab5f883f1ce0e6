package tainteviction

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A restart keeps the times that the API server knows. A standby keeps the times of its own observations.
func TestRestart(t *testing.T) {
	const window = 50 * time.Second
	tolerant := func() *corev1.Pod {
		return aPod("p", tolerates("t1", 3000), tolerates(corev1.TaintNodeUnreachable, 300))
	}
	inBubble(t, "an old taint of a user evicts at once", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Hour)), tolerant())
		defer w.manager(window)()
		w.mustBeDeletedAt("p", 0)
	})
	inBubble(t, "the time before the restart counts", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant())
		w.manager(window)()
		w.until(1000 * time.Second)
		defer w.manager(window)()
		w.until(4000 * time.Second)
		w.mustBeDeletedAt("p", 3000*time.Second)
	})
	inBubble(t, "a pod bound long after the taint has its full time", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", 2*time.Hour)), tolerant())
		w.update("p", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.begin.Add(-1001 * time.Second)),
			}}
		})
		defer w.manager(window)()
		w.until(4000 * time.Second)
		w.mustBeDeletedAt("p", 2000*time.Second)
	})
	inBubble(t, "a taint without time dates from when the standby saw it", func(t *testing.T) {
		taint := noExecuteTaint("t1")
		w := newWorld(t, node1(corev1.ConditionTrue, taint), tolerant())
		c, stop := w.standby(window)
		defer stop()
		w.until(1000 * time.Second)
		defer w.run(c)()
		w.until(4000 * time.Second)
		w.mustBeDeletedAt("p", 3000*time.Second)
	})
	inBubble(t, "an hour away while the node dies, is tainted and recovers", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue), tolerant(), aPod("q"))
		stop := w.manager(window)
		w.until(time.Minute)
		w.node(func(n *corev1.Node) {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
			n.Spec.Taints = []corev1.Taint{nowTaint(corev1.TaintNodeUnreachable)}
		})
		synctest.Wait()
		stop()
		w.mustBeDeletedAt("q", time.Minute) // the pod has no toleration
		w.until(time.Hour)
		w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		defer w.manager(window)()
		w.until(2 * time.Hour)
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
		w.until(3001 * time.Second)
		w.mustLive("p")
		defer w.run(c)()
		w.mustBeDeletedAt("p", 3001*time.Second)
	})
}

// Taints of node health are not trusted before a term has looked around.
func TestTrustWindow(t *testing.T) {
	const window = 50 * time.Second
	unreachable := corev1.TaintNodeUnreachable
	pod := func() *corev1.Pod { return aPod("p", tolerates(unreachable, 300)) }
	for _, tt := range []struct {
		name    string
		objects func() []runtime.Object
		steps   map[time.Duration]func(*world)
		want    time.Duration // -1: never
	}{
		{"a dead node's pods leave when the window is over", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod()}
		}, nil, window},
		{"their later deadline is not moved", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Second)), pod()}
		}, nil, 300 * time.Second},
		{"nobody leaves a node that has become Ready meanwhile", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionTrue, agoTaint(unreachable, time.Hour)), pod()}
		}, nil, -1},
		{"or does so within the window", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour)), pod()}
		}, map[time.Duration]func(*world){49 * time.Second: func(w *world) {
			w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		}}, -1},
		{"a taint that comes later is held no longer than the first window", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown), aPod("p")}
		}, map[time.Duration]func(*world){20 * time.Second: func(w *world) { w.taint(nowTaint(unreachable)) }}, window},
		{"and not at all after it", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown), aPod("p")}
		}, map[time.Duration]func(*world){70 * time.Second: func(w *world) { w.taint(nowTaint(unreachable)) }}, 70 * time.Second},
		{"a node that falls silent again after the window, with its old taint", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionTrue, agoTaint(unreachable, time.Hour)), pod()}
		}, map[time.Duration]func(*world){60 * time.Second: func(w *world) {
			w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}}, 60 * time.Second},
		{"a user's taint does not wait for those of health", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionUnknown, agoTaint(unreachable, time.Hour), agoTaint("user", time.Hour)), pod()}
		}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.objects()...)
				defer w.manager(window)()
				var times []time.Duration
				for at := range tt.steps {
					times = append(times, at)
				}
				slices.Sort(times)
				for _, at := range times {
					w.until(at)
					tt.steps[at](w)
				}
				w.until(1000 * time.Second)
				if tt.want < 0 {
					w.mustLive("p")
				} else {
					w.mustBeDeletedAt("p", tt.want)
				}
			})
		})
	}
}
