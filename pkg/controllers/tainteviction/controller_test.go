package tainteviction

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
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
//	TestGetMinTolerationTime         TestLimitsOf, rows (1) to (5)
//	TestEventualConsistency          here, "late pod"
//	TestPodDeletionEvent             TestEvents, with the pod's UID
//	TestExecute, TestExecuteDelayed  here, "multiple pods"; the queue belongs to package controller
//	TestCancel                       here, "update node: taint removed"
//	TestCancelAndRead                here, "taint removed and back"
//
// Like upstream's timers, taints made by nowTaint date from this moment and are seen at once.
func TestUpstreamCases(t *testing.T) {
	sec := time.Second
	type deletes = map[string]time.Duration
	unbound := func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = ""; return p }
	bind := func(p *corev1.Pod) { p.Spec.NodeName = "node1" }
	wait := func(*world) {}
	for _, tt := range []struct {
		name  string
		start func() []runtime.Object
		// steps happen a second apart, the first after a second
		steps []func(*world)
		want  deletes
	}{
		{"create pod: not scheduled", objects(aNode(), func() runtime.Object { return unbound(aPod("p")) }), nil, deletes{}},
		{"create pod: on an untainted node", objects(aNode(), podWith("p")), nil, deletes{}},
		{"create pod: on a tainted node", objects(aNode("t1"), podWith("p")), nil, deletes{"p": 0}},
		{"create pod: on a node with a taint of another effect", func() []runtime.Object {
			return []runtime.Object{node1(corev1.ConditionTrue, corev1.Taint{Key: "t1", Effect: corev1.TaintEffectNoSchedule}), aPod("p")}
		}, nil, deletes{}},
		{"create pod: finite toleration", objects(aNode("t1"), podWith("p", tolerates("t1", 5000))), nil, deletes{}},
		{"create pod: infinite toleration", objects(aNode("t1"), podWith("p", tolerates("t1"))), nil, deletes{}},
		{"create pod: toleration of another taint", objects(aNode("t1"), podWith("p", tolerates("t2"))), nil, deletes{"p": 0}},

		{"delete pod", objects(aNode("t1"), podWith("p", tolerates("t1", 10))), []func(*world){
			func(w *world) { w.Remove("pods", "default", "p") },
		}, deletes{}},

		{"update pod: bound to a tainted node", objects(aNode("t1"), func() runtime.Object { return unbound(aPod("p")) }), []func(*world){
			func(w *world) { w.update("p", bind) },
		}, deletes{"p": sec}},
		{"update pod: bound to a tolerated node", objects(aNode("t1"), func() runtime.Object { return unbound(aPod("p", tolerates("t1"))) }), []func(*world){
			func(w *world) { w.update("p", bind) },
		}, deletes{}},
		{"update pod: toleration removed", objects(aNode("t1"), podWith("p", tolerates("t1", 100))), []func(*world){
			func(w *world) { w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations = nil }) },
		}, deletes{"p": sec}},
		{"update pod: toleration lengthened", objects(aNode("t1"), podWith("p", tolerates("t1", 5))), []func(*world){
			func(w *world) { w.update("p", func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = 50 }) },
		}, deletes{"p": 50 * sec}},
		{"update pod: toleration shortened", objects(aNode("t1"), podWith("p", tolerates("t1", 100))), []func(*world){
			func(w *world) { w.update("p", func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = 5 }) },
		}, deletes{"p": 5 * sec}},
		{"update pod: toleration shortened into the past", objects(aNode("t1"), podWith("p", tolerates("t1", 100))), []func(*world){
			wait, wait, func(w *world) { w.update("p", func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = 1 }) },
		}, deletes{"p": 3 * sec}},

		{"create node: untainted", objects(nil, podWith("p")), []func(*world){
			func(w *world) { w.Put(node1(corev1.ConditionTrue)) },
		}, deletes{}},
		{"create node: tainted", objects(nil, podWith("p")), []func(*world){
			func(w *world) { w.Put(node1(corev1.ConditionTrue, nowTaint("t1"))) },
		}, deletes{"p": sec}},
		{"create node: tainted, tolerated", objects(nil, podWith("p", tolerates("t1"))), []func(*world){
			func(w *world) { w.Put(node1(corev1.ConditionTrue, nowTaint("t1"))) },
		}, deletes{}},

		{"delete node", objects(aNode("t1"), podWith("p", tolerates("t1", 10))), []func(*world){
			func(w *world) { w.Remove("nodes", "", "node1") },
		}, deletes{}},

		{"update node: taint added", objects(aNode(), podWith("p")), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) },
		}, deletes{"p": sec}},
		{"update node: tolerated taint added", objects(aNode(), podWith("p", tolerates("t1", 100))), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) },
		}, deletes{"p": 101 * sec}},
		{"update node: one of two taints tolerated", objects(aNode(), podWith("p", tolerates("t1", 100))), []func(*world){
			func(w *world) { w.taint(nowTaint("t1"), nowTaint("t2")) },
		}, deletes{"p": sec}},
		{"update node: taint removed", objects(aNode("t1"), podWith("p", tolerates("t1", 10))), []func(*world){
			func(w *world) { w.taint() },
		}, deletes{}},
		{"update node: the first toleration to run out", objects(aNode(), podWith("p", tolerates("t1", 1), tolerates("t2", 100))), []func(*world){
			func(w *world) { w.taint(nowTaint("t1"), nowTaint("t2")) },
		}, deletes{"p": 2 * sec}},
		{"taint removed and back", objects(aNode("t1"), podWith("p", tolerates("t1", 10))), []func(*world){
			func(w *world) { w.taint() }, wait, func(w *world) { w.taint(nowTaint("t1")) },
		}, deletes{"p": 13 * sec}},

		{"multiple taints", objects(aNode(), podWith("p", tolerates("t1"), tolerates("t2", 60))), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) },
			func(w *world) { w.taint(nowTaint("t1"), nowTaint("t2")) },
			func(w *world) { w.taint(nowTaint("t1")) },
		}, deletes{}},
		{"a second taint with a shorter toleration", objects(aNode("t1"), podWith("p", tolerates("t1", 100), tolerates("t2", 5))), []func(*world){
			func(w *world) { w.taint(agoTaint("t1", sec), nowTaint("t2")) },
		}, deletes{"p": 6 * sec}},
		{"a taint swapped for one tolerated longer", objects(aNode("t1"), podWith("p", tolerates("t1", 2), tolerates("t2", 100))), []func(*world){
			func(w *world) { w.taint(nowTaint("t2")) },
		}, deletes{"p": 101 * sec}},

		{"multiple pods: each at its time", objects(aNode(), podWith("p1"), podWith("p2", tolerates("t1", 1)), podWith("p3", tolerates("t1"))), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) },
		}, deletes{"p1": sec, "p2": 2 * sec}},
		{"multiple pods: one taint that nobody tolerates", objects(aNode(), podWith("p1"), podWith("p2", tolerates("t1", 1)), podWith("p3", tolerates("t1"))), []func(*world){
			func(w *world) { w.taint(nowTaint("t1"), nowTaint("t2")) },
		}, deletes{"p1": sec, "p2": sec, "p3": sec}},

		{"late pod: bound after the taint", objects(aNode(), podWith("p1"), func() runtime.Object { return unbound(aPod("p2")) }), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) }, func(w *world) { w.update("p2", bind) },
		}, deletes{"p1": sec, "p2": 2 * sec}},
		{"late pod: bound after the taint, tolerating", objects(aNode(), podWith("p1"), func() runtime.Object { return unbound(aPod("p2", tolerates("t1", 5000))) }), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) }, func(w *world) { w.update("p2", bind) },
		}, deletes{"p1": sec}},
		{"late pod: created after the taint", objects(aNode(), podWith("p1")), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) }, func(w *world) { w.Put(aPod("p2")) },
		}, deletes{"p1": sec, "p2": 2 * sec}},
		{"late pod: created after the taint, tolerating", objects(aNode(), podWith("p1")), []func(*world){
			func(w *world) { w.taint(nowTaint("t1")) }, func(w *world) { w.Put(aPod("p2", tolerates("t1", 5000))) },
		}, deletes{"p1": sec}},
	} {
		steps := map[time.Duration]func(*world){}
		for i, step := range tt.steps {
			steps[time.Duration(i+1)*sec] = step
		}
		scenario{tt.name, tt.start, steps, tt.want}.run(t, 0)
	}
}

// scenario is a cluster of objects that changes at the times of steps.
type scenario struct {
	name  string
	start func() []runtime.Object
	steps map[time.Duration]func(*world)
	want  map[string]time.Duration // first deletes
}

func (s scenario) run(t *testing.T, window time.Duration) {
	inBubble(t, s.name, func(t *testing.T) {
		w := newWorld(t, s.start()...)
		defer w.manager(window)()
		fakeapi.PlaySteps(w, s.steps)
		w.Until(time.Hour)
		if !maps.Equal(w.deletes(), s.want) {
			t.Errorf("deleted at %v, want %v", w.deletes(), s.want)
		}
		if marks := w.Count("patch pods"); marks != len(s.want) {
			t.Errorf("%d pods marked, want %d", marks, len(s.want))
		}
	})
}

func objects(node func() runtime.Object, pods ...func() runtime.Object) func() []runtime.Object {
	return func() []runtime.Object {
		var all []runtime.Object
		if node != nil {
			all = append(all, node())
		}
		for _, pod := range pods {
			all = append(all, pod())
		}
		return all
	}
}

func aNode(taints ...string) func() runtime.Object {
	return func() runtime.Object {
		node := node1(corev1.ConditionTrue)
		for _, key := range taints {
			node.Spec.Taints = append(node.Spec.Taints, nowTaint(key))
		}
		return node
	}
}

func podWith(name string, tolerations ...corev1.Toleration) func() runtime.Object {
	return func() runtime.Object { return aPod(name, tolerations...) }
}

func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := aPod("p")
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		pod.Status.Conditions = []corev1.PodCondition{ready}
		w := newWorld(t, aNode()(), pod)
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
		if diff := cmp.Diff([]corev1.PodCondition{want, ready}, got); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
	})
}
