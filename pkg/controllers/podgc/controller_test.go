package podgc

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/internal/fakeapi"
)

const (
	running, pending, failed, succeeded = corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded
	quarantine                          = 40 * time.Second
)

// Places of the cases of upstream's tests (k8s.io/kubernetes v1.37.1):
//
//	pkg/controller/podgc    TestGCTerminated                          TestSurplus, TestFinishedPods
//	                        TestGCOrphaned                            TestOrphaned
//	                        TestGCUnscheduledTerminating              TestUnscheduledTerminating
//	                        TestGCTerminating                         TestOutOfService
//	                        TestGCInspectingPatchedPodBeforeDeletion  TestMark
//	pkg/util/node           TestIsNodeReady                           TestOutOfServiceNode
//	test/integration/podgc  all 8 cases                               the same; TestKilledAtEachWrite (node)

// podOutcome holds the deleted pods with the time of deletion, and the pods that were marked before.
type podOutcome struct {
	Deleted map[string]time.Duration
	Marked  []string
}

func (w *world) outcome() podOutcome {
	return podOutcome{Deleted: w.deletes(), Marked: slices.Sorted(maps.Keys(w.Accepted("patch pods")))}
}

func (w *world) check(why collectReason, want podOutcome) {
	w.T.Helper()
	if want.Deleted == nil {
		want.Deleted = map[string]time.Duration{}
	}
	fakeapi.WantEqual(w.T, "pods", w.outcome(), want)
	fakeapi.Want(w.T, "deletes in the metric for "+string(why), testutil.ToFloat64(w.controller.metrics.deletes.WithLabelValues("default", string(why))), float64(len(want.Deleted)))
}

type (
	objects = []runtime.Object
	steps   = map[time.Duration]func(*world)
)

// scenario is a cluster of objects that changes at the times of steps.
type scenario struct {
	name  string
	start objects
	steps steps
	until time.Duration
	want  podOutcome
}

func (s scenario) run(t *testing.T, why collectReason, threshold int) {
	fakeapi.Bubble(t, s.name, func(t *testing.T) {
		w := newWorld(t, s.start...)
		defer w.manager(threshold)()
		fakeapi.PlaySteps(w, s.steps)
		w.Until(s.until)
		w.check(why, s.want)
	})
}

// Upstream's TestGCOrphaned (the first 11 rows), and rows about missing nodes.
func TestOrphaned(t *testing.T) {
	at := func(d time.Duration, names ...string) map[string]time.Duration {
		m := map[string]time.Duration{}
		for _, name := range names {
			m[name] = d
		}
		return m
	}
	three := func(node string) objects {
		return objects{aPod("a", node, failed), aPod("b", node, succeeded), aPod("c", node, running)}
	}
	created, removed := func(w *world) { w.Put(aNode("n")) }, func(w *world) { w.Remove("nodes", "", "n") }
	onlyLive := func(w *world) { w.putUnseen(aNode("n")) }
	young := func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(epoch.Add(time.Hour)) }
	for _, s := range []scenario{
		{"nodes are there", append(three("n"), aNode("n")), nil, 2 * quarantine, podOutcome{}},
		{"nodes are there, but the cache does not know", three("n"), steps{0: onlyLive}, 3 * quarantine, podOutcome{}},
		{"no nodes, one running pod", three("n"), nil, 2 * quarantine, podOutcome{Deleted: at(quarantine, "a", "b", "c"), Marked: []string{"c"}}},
		{"quarantine not over", three("n"), nil, quarantine - 1, podOutcome{}},
		{"some nodes missing", append(three("n"), aNode("other"), aPod("d", "other", failed), aPod("e", "other", running)), nil, 2 * quarantine, podOutcome{Deleted: at(quarantine, "a", "b", "c"), Marked: []string{"c"}}},
		{"the API server knows of a node by the end of the quarantine", three("n"), steps{quarantine - 1: onlyLive}, 3 * quarantine, podOutcome{}},
		{"the node is back by the end of the quarantine", three("n"), steps{quarantine - 1: created}, 3 * quarantine, podOutcome{}},
		{"the API server ceases to know of the node", append(three("n")[:1], aNode("n")), steps{0: removed}, 2 * quarantine, podOutcome{Deleted: at(quarantine, "a")}},

		{"one quarantine after the node went", append(three("n"), aNode("n")), steps{time.Second: removed}, time.Hour,
			podOutcome{Deleted: at(time.Second+quarantine, "a", "b", "c"), Marked: []string{"c"}}},
		{"a node that comes and goes again begins a new quarantine", append(three("n"), aNode("n")),
			steps{1 * time.Second: removed, 30 * time.Second: created, 35 * time.Second: removed}, time.Hour,
			podOutcome{Deleted: at(35*time.Second+quarantine, "a", "b", "c"), Marked: []string{"c"}}},
		{"a pod that comes later to a name long missing", three("n")[:1], steps{time.Hour: func(w *world) { w.Put(aPod("late", "n", pending)) }}, 2 * time.Hour,
			podOutcome{Deleted: map[string]time.Duration{"a": quarantine, "late": time.Hour + gatherDelay + quarantine}, Marked: []string{"late"}}},
		{"a new pod beside a pod that is not removed", objects{aPod("a", "n", running, finalized)}, steps{time.Hour: func(w *world) { w.Put(aPod("late", "n", pending, young)) }}, 2 * time.Hour,
			podOutcome{Deleted: map[string]time.Duration{"a": quarantine, "late": time.Hour + quarantine}, Marked: []string{"a", "late"}}},
		{"a pod that an API server with a fast clock created", objects{aPod("a", "n", failed, young)}, nil, time.Hour, podOutcome{Deleted: at(2*quarantine, "a")}},
		{"a pod on a node that is back and that the cache has not seen", objects{aPod("a", "n", running, finalized)},
			steps{quarantine + 200*time.Millisecond: func(w *world) {
				onlyLive(w)
				w.Put(aPod("late", "n", pending)) // within the second in which the live read for "a" is shared
			}}, time.Hour, podOutcome{Deleted: at(quarantine, "a"), Marked: []string{"a"}}},
		{"a node that only the API server knew of, and that went unseen", three("n")[:1],
			steps{0: onlyLive, time.Hour - 1: removed}, 2 * time.Hour, podOutcome{Deleted: at(time.Hour, "a")}},
		{"a pod that replaces a deleted pod of its name in one event", objects{aPod("a", "n", failed, deleted)},
			steps{time.Hour: func(w *world) { w.Put(aPod("a", "n", failed, terminating, finalized, second)) }}, 2 * time.Hour,
			podOutcome{Deleted: at(time.Hour+gatherDelay, "a")}},
	} {
		s.run(t, orphaned, 0)
	}
}

func TestUnscheduledTerminating(t *testing.T) {
	scenario{"", objects{
		aPod("failed", "", failed, terminating), aPod("succeeded", "", succeeded, terminating), aPod("running", "", running, terminating, finalized),
		aPod("waiting", "", pending), aPod("scheduled", "n", succeeded), aPod("leaving", "n", running, terminating), aNode("n"),
	}, steps{time.Minute: func(w *world) {
		w.Put(aPod("late", "", pending, terminating, finalized))
		w.Put(aPod("unheld", "", pending, terminating))
	}}, time.Hour, podOutcome{
		Deleted: map[string]time.Duration{"failed": removalDelay, "succeeded": removalDelay, "running": removalDelay, "late": time.Minute + removalDelay, "unheld": time.Minute + removalDelay},
		Marked:  []string{"late", "running", "unheld"},
	}}.run(t, unscheduled, 0)
}

func outOf(name string, ready corev1.ConditionStatus) *corev1.Node {
	node := aNode(name)
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return node
}

// Upstream's TestGCTerminating; its nodes are rows of TestOutOfServiceNode.
func TestOutOfService(t *testing.T) {
	silent := func(name string) *corev1.Node {
		node := outOf(name, corev1.ConditionUnknown)
		node.Spec.Taints = nil
		return node
	}
	podsOn := func(node *corev1.Node) objects {
		return objects{
			aPod("running", "n", running, terminating), aPod("failed", "n", failed, terminating), aPod("succeeded", "n", succeeded, terminating),
			aPod("staying", "n", running), node,
		}
	}
	all := func(d time.Duration) podOutcome {
		return podOutcome{Deleted: map[string]time.Duration{"running": d, "failed": d, "succeeded": d}, Marked: []string{"running"}}
	}
	goesOut := steps{time.Second: func(w *world) { w.Put(outOf("n", corev1.ConditionUnknown)) }}
	for _, s := range []scenario{
		{"tainted before", podsOn(outOf("n", corev1.ConditionFalse)), nil, time.Hour, all(0)},
		{"tainted later", podsOn(silent("n")), goesOut, time.Hour, all(time.Second)},
		{"silent only later", podsOn(outOf("n", corev1.ConditionTrue)), goesOut, time.Hour, all(time.Second)},
		{"never tainted", podsOn(silent("n")), nil, time.Hour, podOutcome{}},
		{"ready after all", podsOn(outOf("n", corev1.ConditionTrue)), nil, time.Hour, podOutcome{}},
		{"a pod that begins to terminate there",
			objects{outOf("n", corev1.ConditionUnknown), aPod("running", "n", running)},
			steps{time.Second: func(w *world) { w.Put(aPod("running", "n", running, terminating)) }}, time.Minute,
			podOutcome{Deleted: map[string]time.Duration{"running": time.Second + gatherDelay}, Marked: []string{"running"}}},
		{"a live node in service, whatever the cache shows", objects{outOf("n", corev1.ConditionUnknown), aPod("running", "n", running)},
			steps{0: func(w *world) {
				w.putUnseen(silent("n"))
				w.Put(aPod("running", "n", running, terminating))
			}}, time.Minute, podOutcome{}},
	} {
		s.run(t, outOfService, 0)
	}
}

func TestFinishedPods(t *testing.T) {
	older := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(epoch.Add(-2 * time.Hour)) }
	scenario{"", objects{aNode("n"), aPod("a", "n", failed, older), aPod("b", "n", running), aPod("c", "n", succeeded)}, steps{
		61 * time.Second:  func(w *world) { w.Put(aPod("b", "n", succeeded)) },
		120 * time.Second: func(w *world) { w.Put(aPod("d", "n", failed, func(p *corev1.Pod) { p.Status.Reason = "Evicted" })) },
	}, time.Hour, podOutcome{Deleted: map[string]time.Duration{"a": 80 * time.Second, "d": 140 * time.Second}}}.run(t, terminated, 2)
}

// Upstream's TestGCInspectingPatchedPodBeforeDeletion.
func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
		w := newWorld(t, aPod("p", "gone", running, finalized, func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{ready} }))
		defer w.manager(0)()
		w.Until(time.Hour)
		want := corev1.PodStatus{Phase: failed, ObservedGeneration: 2, Conditions: []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 2, Reason: "DeletionByPodGC",
			Message: "PodGC: node no longer exists", LastTransitionTime: metav1.NewTime(w.Begin.Add(quarantine)),
		}, ready}}
		fakeapi.WantEqual(t, "status", w.Pod("p").Status, want)
	})
}

// A pod that finalizers hold is marked and deleted once, by this process and by the next.
func TestNoDuplicateDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aPod("orphan", "gone", running, finalized), outOf("n", corev1.ConditionFalse), aPod("stuck", "n", running, terminating, finalized),
			aPod("unbound", "", pending, terminating, finalized), aPod("old", "n", failed, finalized), aPod("new", "n", failed, func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.Now()
			}))
		for range 2 {
			stop := w.manager(1)
			time.Sleep(time.Hour)
			stop()
		}
		fakeapi.WantEqual(t, "patches and deletes", []int{w.Count("patch pods"), w.Count("delete pods")}, []int{3, 4})
	})
}

func TestSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aPod("p", "gone", running), aNode("n"))
		w.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.Put(aPod("p", "n", running, second))
			return false, nil, nil
		})
		defer w.manager(0)()
		w.Until(time.Hour)
		w.check(orphaned, podOutcome{Marked: []string{"p"}})
		fakeapi.Want(t, "deletes, which the UID rejects", w.Count("delete pods"), 1)
	})
}

func TestOneReadForAllPodsOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for i := range 100 {
			objects = append(objects, aPod(fmt.Sprintf("p%d", i), "gone", running))
		}
		w := newWorld(t, objects...)
		defer w.manager(0)()
		w.Until(time.Hour)
		fakeapi.Want(t, "deleted pods", len(w.deletes()), 100)
		fakeapi.Want(t, "reads of the node", w.Count("get nodes"), 1)
	})
}
