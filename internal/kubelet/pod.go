package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// State is the state of a pod on a node.
type State string

const (
	Pending         State = "pending"          // starting
	Running         State = "running"          // running, not ready
	Ready           State = "ready"            // running and ready
	ContainersReady State = "containers ready" // running, with a closed readiness gate
	Failed          State = "failed"           // containers have ended, not all with success
	Succeeded       State = "succeeded"        // containers have ended with success
)

// Phase is the phase of a pod in this state.
func (s State) Phase() corev1.PodPhase {
	switch s {
	case Failed:
		return corev1.PodFailed
	case Succeeded:
		return corev1.PodSucceeded
	case Running, ContainersReady, Ready:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// Over reports whether a pod does not leave this state.
func (s State) Over() bool { return s == Failed || s == Succeeded }

// containersReady reports whether the containers of a pod in this state are ready.
func (s State) containersReady() bool { return s == Ready || s == ContainersReady }

// StateOf is the state that a pod's status shows.
func StateOf(pod *corev1.Pod) State {
	switch pod.Status.Phase {
	case corev1.PodFailed:
		return Failed
	case corev1.PodSucceeded:
		return Succeeded
	case corev1.PodRunning:
		switch {
		case IsReady(pod):
			return Ready
		case isTrue(pod, corev1.ContainersReady):
			return ContainersReady
		}
		return Running
	}
	return Pending
}

// IsReady reports whether a pod's condition Ready is true.
func IsReady(pod *corev1.Pod) bool { return isTrue(pod, corev1.PodReady) }

func isTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return hasCondition(pod, condition, corev1.ConditionTrue)
}

func hasCondition(pod *corev1.Pod, condition corev1.PodConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition && c.Status == status })
}

// passesGates reports whether the conditions of all readiness gates of a pod are true.
func passesGates(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool { return !isTrue(pod, gate.ConditionType) })
}

// Post posts the state of a pod: phase, conditions Ready and ContainersReady, containers, reason and message. If
// another pod has the name, the error is a conflict.
func Post(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, state State, reason, message string) error {
	now := metav1.Now()
	condition := func(name corev1.PodConditionType, holds bool) map[string]any {
		status := corev1.ConditionFalse
		if holds {
			status = corev1.ConditionTrue
		}
		c := map[string]any{"type": name, "status": status}
		if !hasCondition(pod, name, status) {
			c["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
		}
		return c
	}
	status := map[string]any{
		"phase":             state.Phase(),
		"conditions":        []map[string]any{condition(corev1.PodReady, state == Ready), condition(corev1.ContainersReady, state.containersReady())},
		"containerStatuses": containerStatuses(pod, state, now),
	}
	if pod.Spec.NodeName != "" && pod.Status.PodIP == "" && state.Phase() == corev1.PodRunning {
		ip := addressOf(pod)
		status["podIP"], status["podIPs"] = ip, []corev1.PodIP{{IP: ip}}
	}
	if reason != pod.Status.Reason {
		status["reason"] = reason
	}
	if message != pod.Status.Message {
		status["message"] = message
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("post pod status: %w", err)
	}
	return nil
}

// addressOf returns the address of a pod on a node, a hash of the UID.
func addressOf(pod *corev1.Pod) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.UID))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", sum>>16&255, sum>>8&255, sum%254+1)
}

func containerStatuses(pod *corev1.Pod, state State, now metav1.Time) []corev1.ContainerStatus {
	statuses := make([]corev1.ContainerStatus, len(pod.Spec.Containers))
	for i, c := range pod.Spec.Containers {
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: state.containersReady(), Started: new(state.Phase() == corev1.PodRunning)}
		switch state {
		case Pending:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		case Running, ContainersReady, Ready:
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: startOf(pod, c.Name, now)}
		case Failed:
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: startOf(pod, c.Name, now), FinishedAt: now}
		case Succeeded:
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: startOf(pod, c.Name, now), FinishedAt: now}
		}
		statuses[i] = s
	}
	return statuses
}

func startOf(pod *corev1.Pod, container string, now metav1.Time) metav1.Time {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container && s.State.Running != nil {
			return s.State.Running.StartedAt
		}
	}
	return now
}

// LetGo removes a deleted pod. If another pod has the name, the error is a conflict.
func LetGo(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("let pod go: %w", err)
	}
	return nil
}
