package tainteviction

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controllers/internal/podkey"
	"minikcm/pkg/outcome"
)

// TestUpstreamCases replays the unit tests of upstream's taint manager (k8s.io/kubernetes v1.37.1,
// pkg/controller/tainteviction):
//
//	TestFilterNoExecuteTaints        here, "create pod"
//	TestCreatePod                    here, "create pod"
//	TestDeletePod                    here, "delete pod"
//	TestUpdatePod                    here, "update pod"; "lengthening toleration shouldn't work" inverted
//	TestCreateNode                   here, "create node"
//	TestDeleteNode                   here, "delete node"; upstream's timers went on, ours end
//	TestUpdateNode                   here, "update node"
//	TestUpdateNodeWithMultipleTaints here, "multiple taints"
//	TestUpdateNodeWithMultiplePods   here, "multiple pods"
//	TestGetMinTolerationTime         TestDecide, rows (1) to (5)
//	TestEventualConsistency          here, "late pod"
//	TestPodDeletionEvent             TestEvents, with the pod's UID
//	TestExecute, TestExecuteDelayed  here, "multiple pods"; the queue belongs to package controller
//	TestCancel                       here, "update node: taint removed"
//	TestCancelAndRead                here, "taint removed and back"
//
// Like upstream's timers, taints made by nowTaint date from this moment and are seen at once.
func TestUpstreamCases(t *testing.T) {
	sec := time.Second
	unbound := func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = ""; return p }
	bind := func(p *corev1.Pod) { p.Spec.NodeName = "node1" }
	wait := func(*world) {}
	value := func(v string) func(*world) {
		return func(w *world) { w.taint(corev1.Taint{Key: "t1", Value: v, Effect: corev1.TaintEffectNoExecute}) }
	}
	toleratesValue := func(v string, seconds int64) corev1.Toleration {
		return corev1.Toleration{Key: "t1", Value: v, TolerationSeconds: &seconds}
	}
	for _, tt := range []struct {
		name  string
		start objects
		// steps happen a second apart, the first after a second
		steps steps
		want  deletes
	}{
		{"create pod: not scheduled", objects{aNode(), unbound(aPod("p"))}, nil, deletes{}},
		{"create pod: on an untainted node", objects{aNode(), aPod("p")}, nil, deletes{}},
		{"create pod: on a tainted node", objects{aNode("t1"), aPod("p")}, nil, deletes{"p": 0}},
		{"create pod: on a node with a taint of another effect",
			objects{node1(corev1.ConditionTrue, corev1.Taint{Key: "t1", Effect: corev1.TaintEffectNoSchedule}), aPod("p")}, nil, deletes{}},
		{"create pod: finite toleration", objects{aNode("t1"), aPod("p", tolerates("t1", 5000))}, nil, deletes{}},
		{"create pod: infinite toleration", objects{aNode("t1"), aPod("p", tolerates("t1"))}, nil, deletes{}},
		{"create pod: toleration of another taint", objects{aNode("t1"), aPod("p", tolerates("t2"))}, nil, deletes{"p": 0}},

		{"delete pod", objects{aNode("t1"), aPod("p", tolerates("t1", 10))}, steps{func(w *world) { w.Remove("pods", "default", "p") }}, deletes{}},

		{"update pod: bound to a tainted node", objects{aNode("t1"), unbound(aPod("p"))}, steps{editPod("p", bind)}, deletes{"p": sec}},
		{"update pod: bound to a tolerated node", objects{aNode("t1"), unbound(aPod("p", tolerates("t1")))}, steps{editPod("p", bind)}, deletes{}},
		{"update pod: toleration removed", objects{aNode("t1"), aPod("p", tolerates("t1", 100))}, steps{editPod("p", intolerant)}, deletes{"p": sec}},
		{"update pod: toleration lengthened", objects{aNode("t1"), aPod("p", tolerates("t1", 5))}, steps{editPod("p", tolerateFor(50))}, deletes{"p": 50 * sec}},
		{"update pod: toleration shortened", objects{aNode("t1"), aPod("p", tolerates("t1", 100))}, steps{editPod("p", tolerateFor(5))}, deletes{"p": 5 * sec}},
		{"update pod: toleration shortened into the past", objects{aNode("t1"), aPod("p", tolerates("t1", 100))}, steps{wait, wait, editPod("p", tolerateFor(1))}, deletes{"p": 3 * sec}},

		{"create node: tainted", objects{aPod("p")}, steps{putObject(aNode("t1"))}, deletes{"p": sec}},
		{"create node: tainted, tolerated", objects{aPod("p", tolerates("t1"))}, steps{putObject(aNode("t1"))}, deletes{}},

		{"delete node", objects{aNode("t1"), aPod("p", tolerates("t1", 10))}, steps{func(w *world) { w.Remove("nodes", "", "node1") }}, deletes{}},

		{"update node: taint added", objects{aNode(), aPod("p")}, steps{setTaints("t1")}, deletes{"p": sec}},
		{"update node: tolerated taint added", objects{aNode(), aPod("p", tolerates("t1", 100))}, steps{setTaints("t1")}, deletes{"p": 101 * sec}},
		{"update node: one of two taints tolerated", objects{aNode(), aPod("p", tolerates("t1", 100))}, steps{setTaints("t1", "t2")}, deletes{"p": sec}},
		{"update node: taint removed", objects{aNode("t1"), aPod("p", tolerates("t1", 10))}, steps{setTaints()}, deletes{}},
		{"update node: the first toleration to run out", objects{aNode(), aPod("p", tolerates("t1", 1), tolerates("t2", 100))}, steps{setTaints("t1", "t2")}, deletes{"p": 2 * sec}},
		{"taint removed and back", objects{aNode("t1"), aPod("p", tolerates("t1", 10))}, steps{setTaints(), wait, setTaints("t1")}, deletes{"p": 13 * sec}},
		{"update node: value changed again and again", objects{aNode(), aPod("p", tolerates("t1", 3))}, slices.Repeat(steps{value("a"), value("b")}, 9), deletes{"p": 4 * sec}},
		{"update node: value changed to one with another toleration", objects{aNode(), aPod("p", toleratesValue("a", 100), toleratesValue("b", 5))},
			steps{value("a"), wait, wait, value("b")}, deletes{"p": 9 * sec}},
		{"delete node: created again", objects{aNode("t1"), aPod("p", tolerates("t1", 3))}, steps{func(w *world) { w.Remove("nodes", "", "node1"); w.Put(aNode("t1")) }}, deletes{"p": 4 * sec}},
		{"update node: timeAdded changed again and again", objects{aNode("t1"), aPod("p", tolerates("t1", 3))}, slices.Repeat(steps{setTaints("t1")}, 9), deletes{"p": 3 * sec}},
		{"update node: taint removed and at once added again", objects{aNode("t1"), aPod("p", tolerates("t1", 3))}, steps{func(w *world) { setTaints()(w); setTaints("t1")(w) }}, deletes{"p": 4 * sec}},

		{"multiple taints", objects{aNode(), aPod("p", tolerates("t1"), tolerates("t2", 60))}, steps{setTaints("t1"), setTaints("t1", "t2"), setTaints("t1")}, deletes{}},
		{"a second taint with a shorter toleration", objects{aNode("t1"), aPod("p", tolerates("t1", 100), tolerates("t2", 5))},
			steps{func(w *world) { w.taint(agoTaint("t1", 0), nowTaint("t2")) }}, deletes{"p": 6 * sec}},
		{"a taint swapped for one tolerated longer", objects{aNode("t1"), aPod("p", tolerates("t1", 2), tolerates("t2", 100))}, steps{setTaints("t2")}, deletes{"p": 101 * sec}},

		{"multiple pods: each at its time", objects{aNode(), aPod("p1"), aPod("p2", tolerates("t1", 1)), aPod("p3", tolerates("t1"))},
			steps{setTaints("t1")}, deletes{"p1": sec, "p2": 2 * sec}},

		{"late pod: bound after the taint", objects{aNode(), aPod("p1"), unbound(aPod("p2"))}, steps{setTaints("t1"), editPod("p2", bind)}, deletes{"p1": sec, "p2": 2 * sec}},
		{"late pod: created after the taint, tolerating", objects{aNode(), aPod("p1")}, steps{setTaints("t1"), putObject(aPod("p2", tolerates("t1", 5000)))}, deletes{"p1": sec}},
	} {
		steps := changes{}
		for i, step := range tt.steps {
			steps[time.Duration(i+1)*sec] = step
		}
		scenario{tt.name, tt.start, steps, tt.want}.run(t, 0)
	}
}

type (
	objects = []runtime.Object
	steps   = []func(*world)
	changes = map[time.Duration]func(*world)
	deletes = map[string]time.Duration
)

// setTaints replaces the taints of node1 by taints of this moment.
func setTaints(keys ...string) func(*world) {
	return func(w *world) {
		var taints []corev1.Taint
		for _, key := range keys {
			taints = append(taints, nowTaint(key))
		}
		w.taint(taints...)
	}
}

// editPod changes a pod.
func editPod(name string, edit func(*corev1.Pod)) func(*world) {
	return func(w *world) {
		pod := w.Pod(name)
		edit(pod)
		w.Put(pod)
	}
}

func intolerant(p *corev1.Pod) { p.Spec.Tolerations = nil }

func tolerateFor(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = seconds }
}

func putObject(obj runtime.Object) func(*world) { return func(w *world) { w.Put(obj) } }

// scenario is a cluster of objects that changes at the times of steps.
type scenario struct {
	name  string
	start objects
	steps changes
	want  deletes // the first of each pod
}

func (s scenario) run(t *testing.T, window time.Duration) {
	fakeapi.Bubble(t, s.name, func(t *testing.T) {
		w := newWorld(t, s.start...)
		w.stop = w.manager(window)
		defer func() { w.stop() }()
		fakeapi.PlaySteps(w, s.steps)
		w.Until(time.Hour)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), s.want)
		fakeapi.Want(t, "marked pods", w.Count("patch pods"), len(s.want))
	})
}

func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := aPod("p")
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		pod.Status.Conditions = []corev1.PodCondition{ready}
		w := newWorld(t, aNode(), pod)
		defer w.manager(0)()
		w.Until(time.Second)
		w.taint(nowTaint("t1"))
		w.Until(2 * time.Second)
		want := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 3, Reason: "DeletionByTaintManager",
			Message: "Taint manager: deleting due to NoExecute taint", LastTransitionTime: metav1.NewTime(w.Begin.Add(time.Second)),
		}
		got := w.Pod("p").Status.Conditions
		slices.SortFunc(got, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
		fakeapi.WantEqual(t, "conditions", got, []corev1.PodCondition{want, ready})
	})
}

// Upstream's TestPodDeletionEvent; and the events have the pod's UID.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*world) // after a second
		at   time.Duration
		want []string
	}{
		{"an eviction", func(*world) {}, 10 * time.Second, []string{marking("p")}},
		{"taint removed", func(w *world) { w.taint() }, time.Second, []string{cancelling("p")}},
		{"tolerated for ever", editPod("p", func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil }), time.Second, []string{cancelling("p")}},
		{"pod deleted by another", func(w *world) { w.Remove("pods", "default", "p") }, time.Second, []string{cancelling("p")}},
		{"moved to a later time", editPod("p", tolerateFor(20)), 20 * time.Second, []string{marking("p")}},
		{"moved to now", editPod("p", intolerant), time.Second, []string{marking("p")}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			w := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10)))
			defer w.manager(0)()
			w.Until(time.Second)
			tt.do(w)
			w.Until(tt.at - 1)
			if tt.at > time.Second && len(w.eventTexts()) > 0 {
				t.Errorf("too early: %v", w.eventTexts())
			}
			w.Until(tt.at)
			fakeapi.WantEqual(t, "events", w.eventTexts(), tt.want)
		})
	}
}

// The durations are seconds: upstream's are not (pull requests 141311 and 141742).
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionUnknown, agoTaint(corev1.TaintNodeUnreachable, 21*time.Second)),
			aPod("p"), aPod("q", tolerates(corev1.TaintNodeUnreachable, 300)), aPod("r", tolerates(corev1.TaintNodeUnreachable)))
		c, stop := w.standby(50 * time.Second)
		defer stop()
		defer w.run(c)()
		fakeapi.Want(t, "pending evictions", c.ledger.countPending(), 2)
		w.Until(60 * time.Second) // the taint is taken for 20 s old, the window is 50 s
		fakeapi.Want(t, "pending evictions", c.ledger.countPending(), 1)
		fakeapi.Want(t, "deletions", testutil.ToFloat64(c.metrics.deletions), 1)
		fakeapi.Want(t, "seconds from the deadline to the deletion", fakeapi.Histogram(t, c.metrics.duration).GetSampleSum(), 70)
	})
}

func TestChangesAfterADelete(t *testing.T) {
	removeAndAddTaint := func(w *world, at time.Duration) {
		w.Until(at)
		w.taint()
		w.Until(at + 10*time.Second)
		w.taint(nowTaint("t1"))
		w.Until(at + time.Hour)
	}
	fakeapi.Bubble(t, "a pod that a restore of etcd brings back is deleted again", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10)))
		defer w.manager(0)()
		w.Until(time.Second)
		w.CutWatches("pods")
		w.Break(errors.New("the API server is away"), "list pods")
		w.Until(20 * time.Second)
		w.Put(aPod("p", tolerates("t1", 10)))
		w.RestoreWatches("pods")
		w.Break(nil, "list pods")
		removeAndAddTaint(w, 10*time.Minute)
		fakeapi.Want(t, "deletes", w.Count("delete pods"), 2)
	})
	fakeapi.Bubble(t, "a pod whose deletion the cache does not show is deleted once", func(t *testing.T) {
		w := newWorld(t, aNode("t1"), aPod("p"))
		w.Freeze("pods", true)
		c, stop := w.standby(0)
		defer stop()
		defer w.run(c)()
		removeAndAddTaint(w, 20*time.Second)
		fakeapi.WantEqual(t, "reads and deletes", []int{w.Count("get pods"), w.Count("delete pods")}, []int{2, 1})
		fakeapi.WantEqual(t, "events", w.eventTexts(), []string{marking("p")})
		fakeapi.Want(t, "deletions in the metric", testutil.ToFloat64(c.metrics.deletions), 1)
		fakeapi.Want(t, "pending evictions", c.ledger.countPending(), 0)
	})
}

// Terminating pods are skipped. Finished pods are deleted without a mark.
func TestTerminatingAndFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving, succeeded, failed := aPod("leaving"), aPod("succeeded"), aPod("failed")
		deleted := metav1.Now()
		leaving.DeletionTimestamp = &deleted
		succeeded.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
		w := newWorld(t, aNode("t1"), leaving, succeeded, failed)
		defer w.manager(0)()
		w.Until(time.Second)
		w.taint(nowTaint("t2")) // a second change of the node
		w.Until(time.Minute)
		fakeapi.WantEqual(t, "times of deletes", w.deletes(), deletes{"succeeded": 0, "failed": 0})
		fakeapi.WantEqual(t, "patches and deletes", []int{w.Count("patch pods"), w.Count("delete pods")}, []int{0, 2})
	})
}

// A delete is bounded in time, because the taint may be removed meanwhile.
func TestDeleteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := newWorld(t).standby(0)
		defer stop()
		pod := aPod("p")
		pod.Status.Phase = corev1.PodSucceeded // not marked
		c.Client = fakeapi.BusyClient(t)
		begun := time.Now()
		err := c.markAndDelete(fakeapi.Quiet(t.Context()), podkey.Key{UID: pod.UID}, pod, begun)
		if took := time.Since(begun); err == nil || took > outcome.MaxCompletionDelay {
			t.Errorf("delete ended after %v with %v, want an error after at most %v", took, err, outcome.MaxCompletionDelay)
		}
	})
}
