// Package podstatus patches the status of pods. A patch contains only changes, so trimmed pods
// are never written back, and lists of the pod that violate their merge keys (duplicate environment
// variables or ports) do not matter.
package podstatus

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Change is a change of the status of a pod. Zero fields change nothing. UID must be set: the API server
// rejects the patch for another pod with the same name.
type Change struct {
	UID                types.UID
	ResourceVersion    string // optional precondition
	Phase              corev1.PodPhase
	ObservedGeneration int64
	Condition          *corev1.PodCondition // needs a transition time; the probe time is not sent
}

// Send sends the change as a patch of the status of a pod.
func (c Change) Send(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	_, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, c.patch(), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// patch returns the change as a strategic merge patch.
func (c Change) patch() []byte {
	type metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
	}
	type condition struct {
		corev1.PodCondition
		LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"` // null would remove the kubelet's
	}
	type status struct {
		Phase              corev1.PodPhase `json:"phase,omitempty"`
		ObservedGeneration int64           `json:"observedGeneration,omitempty"`
		Conditions         []condition     `json:"conditions,omitempty"`
	}
	patch := struct {
		Metadata metadata `json:"metadata"`
		Status   status   `json:"status"`
	}{
		Metadata: metadata{UID: c.UID, ResourceVersion: c.ResourceVersion},
		Status:   status{Phase: c.Phase, ObservedGeneration: c.ObservedGeneration},
	}
	if c.Condition != nil {
		patch.Status.Conditions = []condition{{PodCondition: *c.Condition}}
	}
	body, _ := json.Marshal(patch)
	return body
}

// FindCondition returns the condition of a type, or nil.
func FindCondition(conditions []corev1.PodCondition, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// Transition returns next with its transition time: now if the status differs from old, which may be nil.
func Transition(old *corev1.PodCondition, next corev1.PodCondition, now metav1.Time) *corev1.PodCondition {
	next.LastTransitionTime = now
	if old != nil && old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	return &next
}
