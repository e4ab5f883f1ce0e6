package podstatus

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"minikcm/internal/fakeapi"
)

func TestPatch(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	ready := corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: "Probed", Message: "fine", LastProbeTime: now, LastTransitionTime: now,
	}
	target := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "R", Message: "M", ObservedGeneration: 2, LastTransitionTime: now,
	}
	pod := func(edit func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "7", Finalizers: []string{"f/f"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{
				{Name: "TWICE", Value: "1"}, {Name: "TWICE", Value: "2"},
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{ready}},
		}
		edit(&p)
		return p
	}
	for _, tt := range []struct {
		name   string
		change Change
		want   corev1.Pod
	}{
		{"a condition is added beside the others", Change{UID: "u", Condition: &target},
			pod(func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{ready, target} })},
		{"of a condition only what is set is replaced", Change{UID: "u", Condition: &corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: now}},
			pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })},
		{"a phase and the generation it belongs to", Change{UID: "u", Phase: corev1.PodFailed, ObservedGeneration: 3},
			pod(func(p *corev1.Pod) { p.Status.Phase, p.Status.ObservedGeneration = corev1.PodFailed, 3 })},
		{"the pod it is for", Change{UID: "other", ResourceVersion: "8", Phase: corev1.PodFailed},
			pod(func(p *corev1.Pod) { p.UID, p.ResourceVersion, p.Status.Phase = "other", "8", corev1.PodFailed })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, patch := fakeapi.Must(json.Marshal(pod(func(*corev1.Pod) {}))), tt.change.patch()
			var got corev1.Pod
			fakeapi.NoError(t, json.Unmarshal(fakeapi.Must(strategicpatch.StrategicMergePatch(old, patch, corev1.Pod{})), &got))
			anyOrder := cmpopts.SortSlices(func(a, b corev1.PodCondition) bool { return a.Type < b.Type })
			fakeapi.WantEqual(t, "patched pod", got, tt.want, anyOrder)
		})
	}
}

func TestTransition(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1e9, 0)), metav1.NewTime(time.Unix(1e9+60, 0))
	isTrue := corev1.PodCondition{Status: corev1.ConditionTrue, LastTransitionTime: then}
	for _, tt := range []struct {
		name string
		old  *corev1.PodCondition
		next corev1.ConditionStatus
		want metav1.Time
	}{
		{"a new condition begins now", nil, corev1.ConditionTrue, now},
		{"an unchanged status keeps its time", &isTrue, corev1.ConditionTrue, then},
		{"a changed status begins now", &isTrue, corev1.ConditionFalse, now},
	} {
		got := Transition(tt.old, corev1.PodCondition{Status: tt.next}, now)
		fakeapi.WantEqual(t, tt.name, got, &corev1.PodCondition{Status: tt.next, LastTransitionTime: tt.want})
	}
}
