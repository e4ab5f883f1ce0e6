// Package nodestatus reads the conditions of nodes.
package nodestatus

import corev1 "k8s.io/api/core/v1"

// FindCondition returns a pointer to the condition of a type, or nil.
func FindCondition(conditions []corev1.NodeCondition, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// ReadyStatus returns the status of the Ready condition, or an empty string.
func ReadyStatus(node *corev1.Node) corev1.ConditionStatus {
	if ready := FindCondition(node.Status.Conditions, corev1.NodeReady); ready != nil {
		return ready.Status
	}
	return ""
}
