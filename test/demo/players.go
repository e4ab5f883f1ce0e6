package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

const (
	// leaseGrace is short enough to watch a node die. A kubelet's own is 40 s.
	leaseGrace  = 8 * time.Second
	renewPeriod = leaseGrace / 4 // as kubelets do
	bindPeriod  = 100 * time.Millisecond
)

// player simulates a program of a cluster until the player is killed.
type player struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

func play(part func(ctx context.Context)) *player {
	ctx, cancel := context.WithCancel(context.Background())
	p := &player{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		part(ctx)
	}()
	return p
}

func (p *player) kill() {
	p.cancel()
	<-p.ended
}

// every calls do, and again after each period, until ctx ends.
func every(ctx context.Context, period time.Duration, do func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func playKubelet(client kubernetes.Interface, node string) (*player, error) {
	pods, err := kubelet.NewPlayer(client, corev1.NamespaceAll, func(pod *corev1.Pod) kubelet.Course {
		if pod.Spec.NodeName != node {
			return kubelet.Course{GoneAfter: -1}
		}
		if pod.Annotations[unready] != "" {
			return kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Running}}}
		}
		return kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Ready}}}
	})
	if err != nil {
		return nil, err
	}
	return play(func(ctx context.Context) {
		var both sync.WaitGroup
		both.Go(func() { pods.Run(ctx, func() {}) })
		both.Go(func() { every(ctx, renewPeriod, func() { _ = heartbeat(ctx, client, node) }) }) // retried after the period
		both.Wait()
	}), nil
}

func heartbeat(ctx context.Context, client kubernetes.Interface, name string) error {
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := kubelet.Renew(ctx, client, lease); err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil || controlplane.NodeReady(node) == corev1.ConditionTrue {
		return err
	}
	return kubelet.PostReady(ctx, client, node)
}

func playScheduler(client kubernetes.Interface) *player {
	return play(func(ctx context.Context) {
		every(ctx, bindPeriod, func() { _ = schedule(ctx, client) }) // retried after the period
	})
}

func schedule(ctx context.Context, client kubernetes.Interface) error {
	pods, err := client.CoreV1().Pods(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	load := map[string]int{} // pods by node
	var waiting []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			waiting = append(waiting, pod)
		}
		load[pod.Spec.NodeName]++
	}
	if len(waiting) == 0 {
		return nil
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	fit := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 || n.Spec.Unschedulable })
	if len(fit) == 0 {
		return nil
	}
	for _, pod := range waiting {
		node := slices.MinFunc(fit, func(a, b corev1.Node) int { return cmp.Compare(load[a.Name], load[b.Name]) }).Name
		if err := client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{}); err == nil {
			load[node]++
		}
	}
	return nil
}
