package controlplane

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
)

// Kubelet plays the kubelets of all nodes for the pods of a namespace, as soon as it sees them: pods get ready, and those that are being
// deleted go. Pods need no node for it. Its methods may be called at any time.
type Kubelet struct {
	player *kubelet.Player

	lock  sync.Mutex
	ready func(*corev1.Pod) bool
	gone  func(*corev1.Pod) bool
}

// All says yes to every pod, None to no pod.
func All(*corev1.Pod) bool  { return true }
func None(*corev1.Pod) bool { return false }

// Image says yes to pods whose first container has the image.
func Image(image string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == image }
}

// StartKubelet plays until ctx ends. Every pod gets ready, and goes, until Ready and Gone say otherwise.
func StartKubelet(ctx context.Context, client kubernetes.Interface, namespace string) (*Kubelet, error) {
	k := &Kubelet{ready: All, gone: All}
	var err error
	if k.player, err = kubelet.NewPlayer(client, namespace, k.course(All, All)); err != nil {
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

// Ready says which pods get ready from now on, those included that were there before. A pod that is ready stays so.
func (k *Kubelet) Ready(ready func(*corev1.Pod) bool) { k.set(ready, nil) }

// Gone says which of the pods that are being deleted, and have a node to end on, end from now on.
func (k *Kubelet) Gone(gone func(*corev1.Pod) bool) { k.set(nil, gone) }

func (k *Kubelet) set(ready, gone func(*corev1.Pod) bool) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if ready != nil {
		k.ready = ready
	}
	if gone != nil {
		k.gone = gone
	}
	k.player.Follow(k.course(k.ready, k.gone))
}

func (*Kubelet) course(ready, gone func(*corev1.Pod) bool) func(*corev1.Pod) kubelet.Course {
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

// IsPodReady tells whether a pod's condition Ready is true.
func IsPodReady(pod *corev1.Pod) bool { return kubelet.IsReady(pod) }
