package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// State is where a pod has come to on its node.
type State string

const (
	Pending   State = "pending"   // it is being started
	Running   State = "running"   // it runs and is not ready
	Ready     State = "ready"     // it runs and is ready
	Failed    State = "failed"    // its containers have ended, not all with success
	Succeeded State = "succeeded" // its containers have ended, all with success
)

// Phase is the phase of a pod in this state.
func (s State) Phase() corev1.PodPhase {
	switch s {
	case Failed:
		return corev1.PodFailed
	case Succeeded:
		return corev1.PodSucceeded
	case Running, Ready:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// Over reports whether a pod does not leave this state.
func (s State) Over() bool { return s == Failed || s == Succeeded }

// StateOf is the state that a pod's status shows.
func StateOf(pod *corev1.Pod) State {
	switch pod.Status.Phase {
	case corev1.PodFailed:
		return Failed
	case corev1.PodSucceeded:
		return Succeeded
	case corev1.PodRunning:
		if IsReady(pod) {
			return Ready
		}
		return Running
	}
	return Pending
}

// IsReady reports whether a pod's condition Ready is true.
func IsReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Post posts the state of a pod: its phase, its condition Ready, its containers and, if it says more about why, a reason and a message. Nothing is
// posted about another pod of the name: the error is then a conflict.
func Post(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, state State, reason, message string) error {
	ready, now := corev1.ConditionFalse, metav1.Now()
	if state == Ready {
		ready = corev1.ConditionTrue
	}
	status := map[string]any{
		"phase": state.Phase(),
		"conditions": []map[string]any{
			{"type": corev1.PodReady, "status": ready, "lastTransitionTime": now.UTC().Format(time.RFC3339)},
		},
		"containerStatuses": containers(pod, state, now),
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

// containers is the status of the containers of a pod in this state. They start, end and get ready together, and never restart.
func containers(pod *corev1.Pod, state State, now metav1.Time) []corev1.ContainerStatus {
	statuses := make([]corev1.ContainerStatus, len(pod.Spec.Containers))
	for i, c := range pod.Spec.Containers {
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: state == Ready, Started: new(state.Phase() == corev1.PodRunning)}
		switch state {
		case Pending:
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		case Running, Ready:
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

// startOf is when a container that runs was started; one that does not starts now.
func startOf(pod *corev1.Pod, container string, now metav1.Time) metav1.Time {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container && s.State.Running != nil {
			return s.State.Running.StartedAt
		}
	}
	return now
}

// LetGo lets a pod go that is being deleted. Nothing happens to another pod of the name: the error is then a conflict.
func LetGo(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("let pod go: %w", err)
	}
	return nil
}
