package controlplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
)

// Kubelet simulates the kubelets of all nodes for the pods of a namespace: pods become ready, and deleted pods end.
// Pods need no node.
type Kubelet struct{ player *kubelet.Player }

// All matches every pod.
func All(*corev1.Pod) bool { return true }

func Image(image string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == image }
}

// StartKubelet simulates kubelets until ctx ends. By default all pods become ready.
func StartKubelet(ctx context.Context, client kubernetes.Interface, namespace string) (*Kubelet, error) {
	player, err := kubelet.NewPlayer(client, namespace, courseFor(All))
	if err != nil {
		return nil, err
	}
	up := make(chan struct{})
	go player.Run(ctx, func() { close(up) })
	select {
	case <-up:
		return &Kubelet{player}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("play kubelets: %w", context.Cause(ctx))
	}
}

// Ready sets the pods that become ready, including existing pods. Ready pods stay ready.
func (k *Kubelet) Ready(ready func(*corev1.Pod) bool) { k.player.Follow(courseFor(ready)) }

func courseFor(ready func(*corev1.Pod) bool) func(*corev1.Pod) kubelet.Course {
	return func(pod *corev1.Pod) (c kubelet.Course) {
		if ready(pod) {
			c.Steps = []kubelet.Step{{State: kubelet.Ready}}
		}
		return c
	}
}

func IsPodReady(pod *corev1.Pod) bool { return kubelet.IsReady(pod) }
