package controlplane

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
)

// Kubelet simulates the kubelets of all nodes for the pods of a namespace: pods become ready, and deleted pods end.
// Pods need no node.
type Kubelet struct {
	player *kubelet.Player

	lock  sync.Mutex
	ready func(*corev1.Pod) bool
	gone  func(*corev1.Pod) bool
}

// All matches every pod, None matches no pod.
func All(*corev1.Pod) bool  { return true }
func None(*corev1.Pod) bool { return false }

func Image(image string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == image }
}

// StartKubelet simulates kubelets until ctx ends. By default all pods become ready, and all deleted pods end.
func StartKubelet(ctx context.Context, client kubernetes.Interface, namespace string) (*Kubelet, error) {
	k := &Kubelet{ready: All, gone: All}
	var err error
	if k.player, err = kubelet.NewPlayer(client, namespace, k.courseFor(All, All)); err != nil {
		return nil, err
	}
	up := make(chan struct{})
	go k.player.Run(ctx, func() { close(up) })
	select {
	case <-up:
		return k, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("play kubelets: %w", context.Cause(ctx))
	}
}

// Ready sets the pods that become ready, including existing pods. Ready pods stay ready.
func (k *Kubelet) Ready(ready func(*corev1.Pod) bool) { k.setFilters(ready, nil) }

// Gone sets the deleted pods on nodes that end.
func (k *Kubelet) Gone(gone func(*corev1.Pod) bool) { k.setFilters(nil, gone) }

func (k *Kubelet) setFilters(ready, gone func(*corev1.Pod) bool) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if ready != nil {
		k.ready = ready
	}
	if gone != nil {
		k.gone = gone
	}
	k.player.Follow(k.courseFor(k.ready, k.gone))
}

func (*Kubelet) courseFor(ready, gone func(*corev1.Pod) bool) func(*corev1.Pod) kubelet.Course {
	return func(pod *corev1.Pod) (c kubelet.Course) {
		if ready(pod) {
			c.Steps = []kubelet.Step{{State: kubelet.Ready}}
		}
		if !gone(pod) {
			c.GoneAfter = -1
		}
		return c
	}
}

func IsPodReady(pod *corev1.Pod) bool { return kubelet.IsReady(pod) }
