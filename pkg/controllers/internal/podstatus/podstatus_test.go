package podstatus

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
)

func TestChange(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1e9, 0)), metav1.NewTime(time.Unix(1e9+60, 0))
	ready := corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "Probed", Message: "fine", LastProbeTime: then, LastTransitionTime: then,
	}
	target := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "R", Message: "M", ObservedGeneration: 2, LastTransitionTime: now,
	}
	pod := func(edit func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "7", Finalizers: []string{"f/f"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{ready}},
		}
		edit(&p)
		return p
	}
	trimmed := func(uid string, disruption corev1.ConditionStatus) *caches.Pod {
		p := pod(func(p *corev1.Pod) { p.UID, p.Generation = types.UID(uid), 2 })
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: disruption, LastTransitionTime: then})
		return caches.TrimPod(&p)
	}
	mark := func(disruption corev1.ConditionStatus) *corev1ac.PodApplyConfiguration {
		pod := trimmed("u", disruption)
		return NewChange(pod, corev1ac.PodStatus().WithConditions(DisruptionTarget(pod, "R", "M", now.Time)))
	}
	for _, tt := range []struct {
		name   string
		change *corev1ac.PodApplyConfiguration
		want   corev1.Pod
	}{
		{"a condition is added beside the others", mark(corev1.ConditionFalse),
			pod(func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{ready, target} })},
		{"an unchanged status keeps its time", mark(corev1.ConditionTrue), pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{ready, target}
			p.Status.Conditions[1].LastTransitionTime = then
		})},
		{"the pod it is for", NewChange(trimmed("other", ""), corev1ac.PodStatus().WithPhase(corev1.PodFailed)).WithResourceVersion("8"),
			pod(func(p *corev1.Pod) { p.UID, p.ResourceVersion, p.Status.Phase = "other", "8", corev1.PodFailed })},
	} {
		old, patch := fakeapi.Must(json.Marshal(pod(func(*corev1.Pod) {}))), fakeapi.Must(json.Marshal(tt.change))
		var got corev1.Pod
		fakeapi.NoError(t, json.Unmarshal(fakeapi.Must(strategicpatch.StrategicMergePatch(old, patch, corev1.Pod{})), &got))
		tt.want.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		anyOrder := cmpopts.SortSlices(func(a, b corev1.PodCondition) bool { return a.Type < b.Type })
		fakeapi.WantEqual(t, tt.name, got, tt.want, anyOrder)
	}
}
