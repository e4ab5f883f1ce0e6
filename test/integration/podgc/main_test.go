// Package podgc tests the pod garbage collector on a real API server: upstream's integration and end-to-end cases, and what must not
// happen twice.
package podgc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/podgc"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

const finalizer = "test.k8s.io/finalizer"

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// start runs the controller with upstream's test timings until the test ends. It has the rights of deploy/rbac for this controller
// alone, so that the tests also show that they are enough.
func start(t *testing.T, threshold int) {
	t.Helper()
	startAt(t, threshold, clock.RealClock{})
}

// startAt is start with a clock.
func startAt(t *testing.T, threshold int, clock clock.WithTicker) {
	t.Helper()
	cfg := podgc.Config{TerminatedPodThreshold: threshold, Quarantine: time.Second, Period: 500 * time.Millisecond, Workers: 8}
	controlplane.Standby(t, controlplane.LoopOptions{Config: cluster.ManagerConfig("pod-garbage-collector", podgc.Name)}, func(b controlplane.LoopBase) ([]controlplane.RunFunc, error) {
		pods, err1 := b.Caches.Pods()
		nodes, err2 := b.Caches.Nodes()
		c, err3 := podgc.New(cfg, podgc.Deps{Client: b.Client, Pods: pods, Nodes: nodes, Clock: clock, Metrics: b.Metrics})
		return []controlplane.RunFunc{c.Run}, errors.Join(err1, err2, err3)
	}).BeginTerm()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// createNode creates a node that goes with the test.
func createNode(t *testing.T, client kubernetes.Interface, edits ...func(*corev1.Node)) string {
	t.Helper()
	edits = append([]func(*corev1.Node){func(n *corev1.Node) { n.Name, n.GenerateName = "", "node-" }}, edits...)
	node, err := client.CoreV1().Nodes().Create(t.Context(), controlplane.Node("", edits...), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return node.Name
}

// createPod creates a pod; a finalizer that it has goes with the test.
func createPod(t *testing.T, client kubernetes.Interface, namespace, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	edits = append([]func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.NodeName, p.GenerateName = node, "p-"; p.Name = "" }}, edits...)
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), controlplane.Pod(namespace, "", nil, edits...), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { release(t, client, pod) })
	return pod
}

// release takes the finalizers off a pod.
func release(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
	must(t, err)
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(context.Background(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func finalized(p *corev1.Pod) { p.Finalizers = []string{finalizer} }

// eventually waits until a pod, nil if it is gone, is as check wants it, and returns it.
func eventually(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		var err error
		found, err = client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			found, err = nil, nil
		}
		if err != nil {
			return err
		}
		return check(found)
	})
	return found
}

func isGone(p *corev1.Pod) error {
	if p != nil {
		return fmt.Errorf("pod %s is still there, phase %s, deleted %v", p.Name, p.Status.Phase, p.DeletionTimestamp)
	}
	return nil
}

func isTerminating(p *corev1.Pod) error {
	if p == nil || p.DeletionTimestamp == nil {
		return fmt.Errorf("pod is not terminating: %+v", p)
	}
	return nil
}

func hasPhase(want corev1.PodPhase) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p == nil || p.Status.Phase != want {
			return fmt.Errorf("pod has not phase %s: %+v", want, p)
		}
		return nil
	}
}
