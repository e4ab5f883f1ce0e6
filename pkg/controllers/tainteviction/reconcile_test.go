package tainteviction

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
)

// An eviction is for a UID, not for a name.
func TestSameName(t *testing.T) {
	second := func(tolerations ...corev1.Toleration) *corev1.Pod {
		pod := aPod("p", tolerations...)
		pod.UID = "second"
		return pod
	}
	start := objects{aNode("t1"), aPod("p", tolerates("t1", 10))}
	replaceBy := func(tolerations ...corev1.Toleration) changes {
		return changes{9 * time.Second: func(w *world) {
			w.Remove("pods", "default", "p")
			w.Put(second(tolerations...))
		}}
	}
	scenario{"a tolerant pod of the same name stays", start, replaceBy(tolerates("t1")), deletes{}}.run(t, 0)
	scenario{"an intolerant one is evicted", start, replaceBy(), deletes{"p": 9 * time.Second}}.run(t, 0)
	fakeapi.Bubble(t, "one that the cache does not know yet is not touched on account of the first", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, second(), nil })
		defer w.manager(0)()
		w.Until(time.Minute)
		fakeapi.Want(t, "writes", w.Count("patch pods")+w.Count("delete pods"), 0)
	})
	fakeapi.Bubble(t, "one that comes between the last look and the delete is safe", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10)))
		swapped := false
		w.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !swapped {
				swapped = true
				w.Remove("pods", "default", "p")
				w.Put(second(tolerates("t1")))
			}
			return false, nil, nil
		})
		defer w.manager(0)()
		w.Until(time.Minute)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{})
		fakeapi.Want(t, "a delete was sent", swapped, true)
	})
}

// Node and pod are read live before an eviction. All pods of a node share a read of the node.
func TestLiveCheck(t *testing.T) {
	fakeapi.Bubble(t, "a taint that is gone evicts no pod", func(t *testing.T) {
		w, reads := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10))), 0
		w.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return true, node1(corev1.ConditionTrue), nil // the cache still shows the taint
		})
		defer w.manager(0)()
		w.Until(time.Minute)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{})
		fakeapi.Want(t, "reads of the pod", w.Count("get pods"), 0)
		if reads > 3 {
			t.Errorf("%d reads of the node in a minute, want one each 30 s", reads)
		}
	})
	scenario{"a toleration that the cache does not show keeps the pod", objects{aNode("t1"), aPod("p", tolerates("t1", 10))},
		changes{time.Second: func(w *world) { w.Freeze("pods", true); w.Put(aPod("p", tolerates("t1"))) }}, deletes{}}.run(t, 0)
	scenario{"a taint that the cache does not show as removed and added again counts anew", objects{aNode("t1"), aPod("p", tolerates("t1", 10))},
		changes{9 * time.Second: func(w *world) { w.Freeze("nodes", true); setTaints()(w); setTaints("t1")(w) }}, deletes{"p": 20 * time.Second}}.run(t, 0)
	scenario{"a timeAdded that the cache shows late delays until then", objects{aNode("t1"), aPod("p", tolerates("t1", 10))},
		changes{9 * time.Second: func(w *world) { w.Freeze("nodes", true); setTaints("t1")(w) }, 11 * time.Second: func(w *world) { w.Freeze("nodes", false) }}, deletes{"p": 11100 * time.Millisecond}}.run(t, 0)
	plain := corev1.Taint{Key: "t1", Effect: corev1.TaintEffectNoExecute}
	scenario{"a value that the cache does not show delays nothing", objects{node1(corev1.ConditionTrue, plain), aPod("p", tolerates("t1", 10))},
		changes{5 * time.Second: func(w *world) { w.Freeze("nodes", true); plain.Value = "b"; w.taint(plain) }}, deletes{"p": 10 * time.Second}}.run(t, 0)
	key := corev1.TaintNodeUnreachable
	scenario{"a health taint with another timeAdded was added again", objects{node1(corev1.ConditionUnknown, agoTaint(key, 0)), aPod("p", tolerates(key, 10))},
		changes{8 * time.Second: func(w *world) { w.Put(node1(corev1.ConditionUnknown, nowTaint(key))) }}, deletes{"p": 18 * time.Second}}.run(t, 0)
	scenario{"a read from before the node's last change is not used", objects{aNode("t1"), aPod("p"), aPod("q", tolerates("t1", 1000))},
		changes{200 * time.Millisecond: setTaints("t1", "t2")},
		deletes{"p": 0, "q": 200 * time.Millisecond}}.run(t, 0) // the node was read for p
	fakeapi.Bubble(t, "an unreadable node evicts no pod until it can be read", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.Break(errors.New("unreachable"), "get nodes")
		defer w.manager(0)()
		w.Until(10 * time.Second)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{})
		w.Break(nil, "get nodes")
		w.Until(time.Minute)
		fakeapi.Want(t, "deleted pods", len(w.deletes()), 1)
	})
	fakeapi.Bubble(t, "one read for all pods of a node", func(t *testing.T) {
		world := objects{aNode("t1")}
		for i := range 100 {
			world = append(world, aPod(fmt.Sprintf("p%d", i)))
		}
		w := newWorld(t, world...)
		defer w.manager(0)()
		w.Until(500 * time.Millisecond)
		fakeapi.Want(t, "deleted pods", len(w.deletes()), 100)
		fakeapi.Want(t, "reads of the node", w.Count("get nodes"), 1)
	})
}

// Events of pods on a node without taints cost no sync.
func TestPodsOfUntaintedNodesAreNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aNode(), aPod("p"))
		defer w.manager(0)()
		before := fakeapi.Syncs(t, w.Metrics, "noexec_taint_pod")
		for i := range 10 {
			w.Put(aPod(fmt.Sprint("q", i)))
		}
		w.Until(time.Second)
		fakeapi.Want(t, "syncs for ten new pods", fakeapi.Syncs(t, w.Metrics, "noexec_taint_pod")-before, 0)
	})
}

// A restart keeps the times that the API server knows. A standby keeps the times of its own observations.
func TestRestart(t *testing.T) {
	const window = 50 * time.Second
	tolerant := func() *corev1.Pod {
		return aPod("p", tolerates("t1", 3000), tolerates(corev1.TaintNodeUnreachable, 300))
	}
	bound := tolerant()
	bound.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(-1001 * time.Second)),
	}}
	end, begin := func(w *world) { w.stop() }, func(w *world) { w.stop = w.manager(window) }
	for _, s := range []scenario{
		{"the time before the restart counts", objects{node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant()},
			changes{0: end, 1000 * time.Second: begin}, deletes{"p": 3000 * time.Second}},
		{"a pod bound long after the taint has its full time", objects{node1(corev1.ConditionTrue, agoTaint("t1", 2*time.Hour)), bound},
			nil, deletes{"p": 2000 * time.Second}},
		{"half an hour away while the node dies, is tainted and recovers", objects{node1(corev1.ConditionTrue), tolerant(), aPod("q")}, changes{
			time.Minute: func(w *world) {
				w.node(func(n *corev1.Node) {
					n.Status.Conditions[0].Status = corev1.ConditionUnknown
					n.Spec.Taints = []corev1.Taint{nowTaint(corev1.TaintNodeUnreachable)}
				})
			},
			time.Minute + 1: end,
			30 * time.Minute: func(w *world) {
				w.node(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
				begin(w)
			},
		}, deletes{"q": time.Minute}}, // q has no toleration
	} {
		s.run(t, window)
	}
	fakeapi.Bubble(t, "a taint without time dates from when the standby saw it", func(t *testing.T) {
		taint := noExecuteTaint("t1")
		w := newWorld(t, node1(corev1.ConditionTrue, taint), tolerant())
		c, stop := w.standby(window)
		defer stop()
		w.Until(1000 * time.Second)
		defer w.run(c)()
		w.Until(4000 * time.Second)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{"p": 3000 * time.Second})
	})
	fakeapi.Bubble(t, "a second term of the same process knows nothing of the first", func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionTrue, agoTaint("t1", time.Second)), tolerant())
		c, stop := w.standby(window)
		defer stop()
		w.run(c)()
		fakeapi.Want(t, "pending evictions outside a term", c.ledger.countPending(), 0)
		w.Until(3001 * time.Second)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{})
		defer w.run(c)()
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{"p": 3001 * time.Second})
	})
	fakeapi.Bubble(t, "a term ends after its deletes", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Second)
			return false, nil, nil
		})
		w.manager(window)()
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{"p": time.Second})
	})
}

// Taints of node health are not trusted before a term has looked around.
func TestTrustWindow(t *testing.T) {
	const window = 50 * time.Second
	unreachable := corev1.TaintNodeUnreachable
	sec := time.Second
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
		{"pods of a node that becomes Ready within the window stay", cluster("Unknown", old), changes{49 * sec: becomes("True")}, deletes{}},
		{"a later taint waits for the end of the window", cluster("Unknown"), changes{20 * sec: tainted}, deletes{"intolerant": window, "p": 320 * sec}},
		{"a taint after the window does not wait", cluster("Unknown"), changes{70 * sec: tainted}, deletes{"intolerant": 70 * sec, "p": 370 * sec}},
		{"a node with an old taint becomes Unknown after the window", cluster("True", old), changes{60 * sec: becomes("Unknown")}, deletes{"p": 60 * sec}},
		{"a taint of a user does not wait", cluster("Unknown", old, agoTaint("user", time.Hour)), nil, deletes{"p": 0}},
	} {
		s.run(t, window)
	}
}

// A rejection that looks like the conflict of a UID is still a rejection.
func TestRejectionsOfAllKinds(t *testing.T) {
	for name, rejection := range fakeapi.NewRefusals("Pod", "pods", "p") {
		for _, request := range []string{"get nodes", "get pods", "patch pods/status", "delete pods"} {
			fakeapi.Bubble(t, name+" of "+request, func(t *testing.T) {
				w := newWorld(t, aNode("t1"), aPod("p"))
				w.Break(rejection, request)
				defer w.manager(0)()
				w.Until(10 * time.Minute)
				if n := w.Count(request); n < 5 || n > 40 {
					t.Errorf("%d tries in ten minutes, want a few", n)
				}
				fakeapi.Want(t, "deleted pods", len(w.deletes()), 0)
				w.Break(nil, request)
				w.Until(12 * time.Minute)
				fakeapi.Want(t, "deleted pods", len(w.deletes()), 1)
			})
		}
	}
}

func TestPodOnNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stray := aPod("stray")
		stray.Spec.NodeName = "never-was"
		w := newWorld(t, aNode("t1"))
		defer w.manager(0)()
		w.Put(stray)
		w.Until(time.Hour)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{})
		fakeapi.Want(t, "reads for a pod of a missing node", w.Count("get pods")+w.Count("get nodes"), 0)
	})
}

// The leader dies amid evictions: some pods are marked and not deleted. The standby restarts no deadline.
func TestStandbyContinuesEvictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taint := nowTaint("t1")
		w := newWorld(t, node1(corev1.ConditionTrue), aPod("now"), aPod("soon", tolerates("t1", 30)), aPod("later", tolerates("t1", 100)))
		c, stopStandby := w.standby(0)
		defer stopStandby()
		stopLeader := w.manager(0)
		w.Break(errors.New("the leader died here"), "delete pods")
		w.taint(taint)
		w.Until(40 * time.Second)
		stopLeader()
		w.Break(nil, "delete pods", "get nodes")
		w.Until(50 * time.Second)
		defer w.run(c)()
		w.Until(200 * time.Second)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{"now": 50 * time.Second, "soon": 50 * time.Second, "later": 100 * time.Second})
	})
}
