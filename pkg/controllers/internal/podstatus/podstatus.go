// Package podstatus makes the patches by which controllers change a pod's status. A patch names only what changes, so a pod of which
// only a part was read is never written back, and lists elsewhere in the pod that violate their merge keys (duplicate environment
// variables or ports) do not come into it.
package podstatus

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Change of a pod's status. Zero fields change nothing, those of the condition included, except that UID must be set: the patch is
// refused by another pod of the same name.
type Change struct {
	UID                types.UID
	ResourceVersion    string // if set, the patch is refused by any other version of the pod
	Phase              corev1.PodPhase
	ObservedGeneration int64
	Condition          *corev1.PodCondition // its transition time must be set; its probe time, which is a kubelet's, is not sent
}

// Patch returns the change as a strategic merge patch of the status subresource.
func (c Change) Patch() ([]byte, error) {
	type metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
	}
	type condition struct {
		corev1.PodCondition
		LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"` // encoded as null, the one embedded would remove a kubelet's
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
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode status patch: %w", err)
	}
	return data, nil
}

// Find returns the condition of a type, nil if there is none.
func Find(conditions []corev1.PodCondition, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// Transition returns next with the transition time it must have after old, which may be nil: now if the status changes.
func Transition(old *corev1.PodCondition, next corev1.PodCondition, now metav1.Time) *corev1.PodCondition {
	next.LastTransitionTime = now
	if old != nil && old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	return &next
}
