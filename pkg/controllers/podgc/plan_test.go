package podgc

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
)

func TestNoCauseInQuarantine(t *testing.T) {
	pod := &caches.Pod{Phase: corev1.PodRunning, NodeName: "n"}
	fakeapi.Want(t, "reason in quarantine", reasonFor(pod, nodeState{}, true, false), none)
}

func TestSurplusPodMustBeFinished(t *testing.T) {
	pod := &caches.Pod{Phase: corev1.PodRunning}
	fakeapi.Want(t, "reason for a running pod", reasonFor(pod, nodeState{exists: true}, false, true), none)
}

// Upstream's TestGCTerminated. Pods are in order of creation, an hour apart; "x!" is a pod that a
// kubelet evicted.
func TestSurplus(t *testing.T) {
	const running, failed, succeeded = corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded
	type pod struct {
		name   string
		phase  corev1.PodPhase
		reason string
	}
	for _, tt := range []struct {
		name      string
		pods      []pod
		threshold int
		want      []string
	}{
		{"the two oldest of three", []pod{{"a", failed, ""}, {"b", succeeded, ""}, {"c", failed, ""}}, 1, []string{"a", "b"}},
		{"the older of two finished", []pod{{"a", running, ""}, {"b", succeeded, ""}, {"c", failed, ""}}, 1, []string{"b"}},
		{"fewer than the threshold", []pod{{"a", failed, ""}, {"b", succeeded, ""}}, 5, nil},
		{"exactly the threshold", []pod{{"a", failed, ""}, {"b", succeeded, ""}}, 2, nil},
		{"evicted first, then the oldest", []pod{{"a", failed, ""}, {"b", succeeded, ""}, {"c", failed, "Evicted"}}, 1, []string{"c", "a"}},
		{"evicted first", []pod{{"a", running, ""}, {"b", succeeded, ""}, {"c", failed, "Evicted"}}, 1, []string{"c"}},
		{"age before name", []pod{{"z", failed, ""}, {"y", failed, ""}, {"x", failed, ""}}, 2, []string{"z"}},
		{"only a failed pod was evicted", []pod{{"a", succeeded, ""}, {"b", succeeded, "Evicted"}}, 1, []string{"a"}},
		{"an unknown phase is finished", []pod{{"a", "", ""}, {"b", corev1.PodPending, ""}, {"c", corev1.PodUnknown, ""}, {"d", succeeded, ""}}, 1, []string{"a"}},
	} {
		var pods []*caches.Pod
		for i, p := range tt.pods {
			pod := &caches.Pod{Phase: p.phase, Reason: p.reason}
			pod.Name, pod.CreationTimestamp = p.name, metav1.NewTime(time.Unix(int64(i)*3600, 0))
			pods = append(pods, pod)
		}
		slices.Reverse(pods) // the cache has no order
		var got []string
		for _, pod := range surplusPods(pods, tt.threshold) {
			got = append(got, pod.Name)
		}
		fakeapi.WantEqual(t, tt.name+": surplus", got, tt.want)
	}
}

func TestSurplusOrder(t *testing.T) {
	pod := func(namespace, name string) *caches.Pod {
		p := &caches.Pod{Phase: corev1.PodFailed}
		p.Namespace, p.Name = namespace, name
		return p
	}
	b, a2, a1 := pod("n1", "b"), pod("n2", "a"), pod("n1", "a")
	fakeapi.WantEqual(t, "order of pods of one age", surplusPods([]*caches.Pod{b, a2, a1}, 1), []*caches.Pod{a1, a2})
	held := pod("n1", "0")
	held.DeletionTimestamp, held.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64)
	fakeapi.Want(t, "surplus beside a pod that only its finalizers hold", len(surplusPods([]*caches.Pod{held, a1}, 1)), 0)
}

// The cases of upstream's pkg/util/node TestIsNodeReady and of the nodes in its TestGCTerminating.
func TestOutOfServiceNode(t *testing.T) {
	ready := func(s corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: s}}
	}
	taint := func(key, value string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoExecute}, {Key: key, Value: value, Effect: effect}}
	}
	const key = corev1.TaintNodeOutOfService
	for _, tt := range []struct {
		name       string
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		want       bool
	}{
		{"not ready, NoExecute", ready(corev1.ConditionFalse), taint(key, "", corev1.TaintEffectNoExecute), true},
		{"not ready, NoSchedule", ready(corev1.ConditionFalse), taint(key, "", corev1.TaintEffectNoSchedule), true},
		{"not ready, PreferNoSchedule", ready(corev1.ConditionFalse), taint(key, "", corev1.TaintEffectPreferNoSchedule), true},
		{"not ready, any value", ready(corev1.ConditionFalse), taint(key, "any-value", corev1.TaintEffectNoExecute), true},
		{"unknown", ready(corev1.ConditionUnknown), taint(key, "", corev1.TaintEffectNoExecute), true},
		{"no Ready condition", nil, taint(key, "", corev1.TaintEffectNoExecute), true},
		{"ready", ready(corev1.ConditionTrue), taint(key, "", corev1.TaintEffectNoExecute), false},
		{"not ready, another taint", ready(corev1.ConditionFalse), taint("x", "", corev1.TaintEffectNoExecute), false},
		{"not ready, no taint", ready(corev1.ConditionFalse), nil, false},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.taints}, Status: corev1.NodeStatus{Conditions: tt.conditions}}
		fakeapi.Want(t, tt.name, isOutOfService(node), tt.want)
	}
}
