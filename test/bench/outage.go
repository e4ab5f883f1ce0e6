package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"minikcm/test/controlplane"
)

const (
	podsPerNode = 30
	outagePods  = nodeCount * podsPerNode
)

var (
	outageNodes  = metric{"first node Unknown to the last", "s"}
	outageMarked = metric{"first node Unknown to the last of 30,000 pods not ready", "s"}
	outageCPU    = metric{"manager CPU, marking", "s"}
	outageServer = metric{"API server CPU, marking", "s"}
	evicted      = metric{"first taint to the last of 30,000 pods deleted", "s"}
	evictedCPU   = metric{"manager CPU, evicting", "s"}
)

func manyPodsOnManyNodes(ctx context.Context, r *rig) error {
	if err := manyNodes(ctx, r); err != nil {
		return err
	}
	return inParallel(ctx, writers, outagePods, func(ctx context.Context, i int) error {
		return r.runPod(ctx, nodeName(i/podsPerNode), fmt.Sprintf("pod-%d", i))
	})
}

// runPod creates a pod that runs on a node and is ready.
func (r *rig) runPod(ctx context.Context, node, name string) error {
	pods := r.client.CoreV1().Pods(benchNamespace)
	pod, err := pods.Create(ctx, controlplane.Pod(benchNamespace, name, nil, func(p *corev1.Pod) { p.Spec.NodeName = node }), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("post pod status: %w", err)
	}
	return nil
}

// measureOutage lets all nodes fall silent, and taints them when their pods have been marked: of nodes that are all silent, no manager
// evicts by itself.
func measureOutage(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	beating, stopBeating := context.WithCancel(ctx)
	defer stopBeating()
	k := &kubelets{client: r.client, renewers: fewRenewers, signs: map[string]time.Time{}}
	beats := make(chan error, 1)
	go func() { beats <- k.run(beating, nodeNames(nodeCount)) }()
	m, err := r.launchWorking(ctx, c, nodeGrace)
	if err != nil {
		return nil, err
	}
	if err := r.awaitQuiet(ctx, nodesQuiet); err != nil {
		return nil, err
	}
	stopBeating()
	if err := <-beats; err != nil {
		return nil, err
	}
	var first, last, marked time.Time
	marking, err := r.effort(ctx, m, "marking", func() (end time.Time, err error) {
		first, last, marked, err = r.untilMarked(ctx)
		return marked, err
	})
	if err != nil {
		return nil, err
	}
	evicting, err := r.effort(ctx, m, "evicting", func() (time.Time, error) { return r.untilAllTerminate(ctx) })
	return []reading{
		{outageNodes, last.Sub(first).Seconds()}, {outageMarked, marked.Sub(first).Seconds()}, {outageCPU, marking.manager}, {outageServer, marking.apiServer},
		{evicted, evicting.wall}, {evictedCPU, evicting.manager},
	}, err
}

// untilMarked waits until all nodes are Unknown and all pods are not ready, and returns when the first node and the last of both was.
func (r *rig) untilMarked(ctx context.Context) (firstNode, lastNode, lastPod time.Time, err error) {
	nodes, err := watchFromNow(ctx, r.client.CoreV1().Nodes(), metav1.ListOptions{})
	if err != nil {
		return firstNode, lastNode, lastPod, err
	}
	defer nodes.Stop()
	pods, err := r.watchPods(ctx, benchNamespace)
	if err != nil {
		return firstNode, lastNode, lastPod, err
	}
	defer pods.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		unknown := map[string]bool{}
		lastNode, err = follow(ctx, nodes, func(e watch.Event) bool {
			node, ok := e.Object.(*corev1.Node)
			if ok && readiness(node) == corev1.ConditionUnknown {
				unknown[node.Name] = true
			}
			if len(unknown) == 1 && firstNode.IsZero() {
				firstNode = time.Now()
			}
			return len(unknown) == nodeCount
		})
		return err
	})
	group.Go(func() (err error) {
		lastPod, err = follow(ctx, pods, all(outagePods, func(p *corev1.Pod) bool {
			return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionFalse
		}))
		return err
	})
	return firstNode, lastNode, lastPod, group.Wait()
}

// untilAllTerminate puts a taint on all nodes that no pod tolerates, and returns when the last pod was terminating.
func (r *rig) untilAllTerminate(ctx context.Context) (time.Time, error) {
	pods, err := r.watchPods(ctx, benchNamespace)
	if err != nil {
		return time.Time{}, err
	}
	defer pods.Stop()
	taint := []byte(`{"spec":{"taints":[{"key":"example.com/outage","effect":"NoExecute"}]}}`)
	err = inParallel(ctx, writers, nodeCount, func(ctx context.Context, i int) error {
		_, err := r.client.CoreV1().Nodes().Patch(ctx, nodeName(i), types.StrategicMergePatchType, taint, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("taint nodes: %w", err)
	}
	return follow(ctx, pods, all(outagePods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }))
}

// all is true for the event with which n pods have come to what is awaited.
func all(n int, awaited func(*corev1.Pod) bool) func(watch.Event) bool {
	there := make(map[types.UID]bool, n)
	return func(e watch.Event) bool {
		if pod, ok := e.Object.(*corev1.Pod); ok && (e.Type == watch.Deleted || awaited(pod)) {
			there[pod.UID] = true
		}
		return len(there) == n
	}
}
