package tainteviction

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/test/controlplane"
)

// The cases of test/e2e/node/taints.go of k8s.io/kubernetes v1.37.1, with tolerations and waits that need no kubelet:
//
//	evicts pods from tainted nodes                                     TestSinglePod
//	doesn't evict pod with tolerations from tainted nodes              TestSinglePod
//	eventually evict pod with finite tolerations from tainted nodes    TestSinglePod
//	removing taint cancels eviction (Conformance)                      TestRemovingTaintCancels
//	pods evicted from tainted nodes have pod disruption condition      TestDisruptionCondition
//	only evicts pods without tolerations from tainted nodes            TestOnlyIntolerantPods
//	evicts pods with minTolerationSeconds (Conformance)                TestMinTolerationSeconds
//
// and test/integration/node TestEvictionForNoExecuteTaintAddedByUser, as far as it is about eviction, TestTaintAddedByUser.

func TestSinglePod(t *testing.T) {
	for _, tt := range []struct {
		name     string
		edits    []func(*corev1.Pod)
		at, till time.Duration // when it leaves, counted from the taint; zero till: never
	}{
		{"evicts pods from tainted nodes", nil, 0, late},
		{"doesn't evict pod with tolerations", []func(*corev1.Pod){tolerates(evictKey)}, 0, 0},
		{"eventually evict pod with finite tolerations", []func(*corev1.Pod){tolerates(evictKey, 3)}, 3 * time.Second, 3*time.Second + late},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, ns := cluster.Client(t), cluster.Namespace(t)
			node := createNode(t, client, corev1.ConditionTrue)
			createPod(t, client, ns, "p", node, tt.edits...)
			start(t, time.Minute)
			tainted := time.Now()
			setTaints(t, client, node, evictTaint())
			if tt.till == 0 {
				stays(t, client, ns, "p", soon)
				return
			}
			evicted(t, client, ns, "p")
			if d := time.Since(tainted); d < tt.at || d > tt.till {
				t.Errorf("evicted %v after the taint, want between %v and %v", d, tt.at, tt.till)
			}
		})
	}
}

func TestRemovingTaintCancels(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node := createNode(t, client, corev1.ConditionTrue)
	createPod(t, client, ns, "p", node, tolerates(evictKey, 3))
	now := testingclock.NewFakeClock(time.Now()) // the toleration lasts until the test says so
	run := startAt(t, time.Minute, now)
	setTaints(t, client, node, evictTaint())
	controlplane.Eventually(t, patience, func(context.Context) error {
		if pending := run.Metric(t, "taint_eviction_controller_evictions_pending"); pending != 1 {
			return fmt.Errorf("%v evictions are pending, want 1", pending)
		}
		return nil
	})
	setTaints(t, client, node)
	hasEvent(t, ns, "Cancelling deletion of Pod "+ns+"/p")
	now.Step(time.Minute)
	stays(t, client, ns, "p", soon)
}

func TestDisruptionCondition(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node := createNode(t, client, corev1.ConditionTrue)
	createPod(t, client, ns, "p", node, func(p *corev1.Pod) { p.Finalizers = []string{finalizer} })
	t.Cleanup(func() {
		pod, err := client.CoreV1().Pods(ns).Get(context.Background(), "p", metav1.GetOptions{})
		must(t, err)
		pod.Finalizers = nil
		_, err = client.CoreV1().Pods(ns).Update(context.Background(), pod, metav1.UpdateOptions{})
		must(t, err)
	})
	start(t, time.Minute)
	setTaints(t, client, node, evictTaint())
	pod := evicted(t, client, ns, "p")
	got := controlplane.Disruption(pod)
	if got == nil {
		t.Fatal("no condition DisruptionTarget")
	}
	if got.LastTransitionTime.IsZero() {
		t.Error("no transition time")
	}
	got.LastTransitionTime = metav1.Time{}
	if want := (corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 1,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	}); *got != want {
		t.Errorf("condition %+v, want %+v", *got, want)
	}
	if grace := pod.DeletionGracePeriodSeconds; grace == nil || *grace != 30 {
		t.Errorf("grace period %v, want the pod's own, 30", grace)
	}
	hasEvent(t, ns, "Marking for deletion Pod "+ns+"/p")
}

// hasEvent waits for an event about pod p, by name and UID.
func hasEvent(t *testing.T, namespace, message string) {
	t.Helper()
	client := cluster.Client(t)
	pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), "p", metav1.GetOptions{})
	must(t, err)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Message == message && e.Reason == "TaintManagerEviction" && e.Type == corev1.EventTypeNormal &&
				e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == "p" && e.InvolvedObject.UID == pod.UID &&
				e.Source.Component == "taint-eviction-controller"
		}) {
			return fmt.Errorf("no event %q among %+v", message, list.Items)
		}
		return nil
	})
}

func TestOnlyIntolerantPods(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node1, node2 := createNode(t, client, corev1.ConditionTrue), createNode(t, client, corev1.ConditionTrue)
	createPod(t, client, ns, "p1", node1)
	createPod(t, client, ns, "p2", node2, tolerates(evictKey))
	start(t, time.Minute)
	setTaints(t, client, node1, evictTaint())
	setTaints(t, client, node2, evictTaint())
	evicted(t, client, ns, "p1")
	stays(t, client, ns, "p2", soon)
}

func TestMinTolerationSeconds(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node := createNode(t, client, corev1.ConditionTrue)
	createPod(t, client, ns, "p1", node, tolerates(evictKey, 1))
	createPod(t, client, ns, "p2", node, tolerates(evictKey, 5))
	start(t, time.Minute)
	tainted := time.Now()
	setTaints(t, client, node, evictTaint())
	for i, seconds := range []float64{1, 5} {
		evicted(t, client, ns, fmt.Sprintf("p%d", i+1))
		if d := time.Since(tainted).Seconds(); d < seconds || d > seconds+late.Seconds() {
			t.Errorf("p%d evicted %.2f s after the taint, want %.0f s", i+1, d, seconds)
		}
	}
}

func TestTaintAddedByUser(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("controller started: %v", running), func(t *testing.T) {
			client, ns := cluster.Client(t), cluster.Namespace(t)
			if running {
				start(t, time.Millisecond)
			}
			var nodes []string
			for range 3 {
				nodes = append(nodes, createNode(t, client, corev1.ConditionTrue))
			}
			createPod(t, client, ns, "p", nodes[1])
			setTaints(t, client, nodes[1], corev1.Taint{Key: "CustomTaintByUser", Effect: corev1.TaintEffectNoExecute})
			if !running {
				stays(t, client, ns, "p", soon)
				return
			}
			if controlplane.Disruption(evicted(t, client, ns, "p")) == nil {
				t.Error("no condition DisruptionTarget")
			}
		})
	}
}
