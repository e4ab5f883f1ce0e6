package nodestatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReady(t *testing.T) {
	memory := corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}
	ready := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status}
	}
	for _, tt := range []struct {
		name       string
		conditions []corev1.NodeCondition
		want       corev1.ConditionStatus
	}{
		{"no conditions", nil, ""},
		{"none of the type", []corev1.NodeCondition{memory}, ""},
		{"behind another", []corev1.NodeCondition{memory, ready(corev1.ConditionUnknown)}, corev1.ConditionUnknown},
		{"before another", []corev1.NodeCondition{ready(corev1.ConditionFalse), memory}, corev1.ConditionFalse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: tt.conditions}}
			if got := ReadyStatus(node); got != tt.want {
				t.Errorf("Ready = %q, want %q", got, tt.want)
			}
		})
	}
}
