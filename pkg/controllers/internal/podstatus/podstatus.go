// Package podstatus patches the status of pods. A patch contains only changes, so trimmed pods
// are never written back, and lists of the pod that violate their merge keys (duplicate environment
// variables or ports) do not matter.
package podstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/pkg/caches"
)

// NewChange returns a change of the status of a pod. The API server rejects the change for another pod with the same
// name and, if the change gets a resourceVersion, for another version.
func NewChange(pod *caches.Pod, status *corev1ac.PodStatusApplyConfiguration) *corev1ac.PodApplyConfiguration {
	return corev1ac.Pod(pod.Name, pod.Namespace).WithUID(pod.UID).WithStatus(status)
}

// Send sends a change as a strategic merge patch.
func Send(ctx context.Context, client kubernetes.Interface, change *corev1ac.PodApplyConfiguration) error {
	body, _ := json.Marshal(change)
	_, err := client.CoreV1().Pods(*change.Namespace).Patch(ctx, *change.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of pod %s/%s: %w", *change.Namespace, *change.Name, err)
	}
	return nil
}

// DisruptionTarget returns the condition of a pod that is about to be deleted. A condition that is True keeps its
// transition time.
func DisruptionTarget(pod *caches.Pod, reason, message string, now time.Time) *corev1ac.PodConditionApplyConfiguration {
	since := metav1.NewTime(now)
	if pod.Disruption.Status == corev1.ConditionTrue {
		since = pod.Disruption.Since
	}
	return corev1ac.PodCondition().WithType(corev1.DisruptionTarget).WithStatus(corev1.ConditionTrue).WithLastTransitionTime(since).
		WithObservedGeneration(pod.Generation).WithReason(reason).WithMessage(message)
}
