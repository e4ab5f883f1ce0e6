package nodestatus

import corev1 "k8s.io/api/core/v1"

// Find returns the condition of a type, nil if there is none. It points into the slice.
func Find(conditions []corev1.NodeCondition, of corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// Ready is the status of the node's Ready condition, empty if it has none.
func Ready(node *corev1.Node) corev1.ConditionStatus {
	if ready := Find(node.Status.Conditions, corev1.NodeReady); ready != nil {
		return ready.Status
	}
	return ""
}
