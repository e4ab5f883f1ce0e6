// Package tainteviction tests the eviction of pods from tainted nodes on a real API server: upstream's end-to-end cases with shorter
// tolerations, and what the fakes of the unit tests cannot show.
//
// There is no kubelet, so a pod that was evicted stays, terminating, until the test's namespace goes.
package tainteviction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 30 * time.Second

// soon is how long something that should not happen is given to happen.
const soon = 2 * time.Second

// late is how much after its time something may happen on a busy machine.
const late = time.Minute

const finalizer = "test.k8s.io/finalizer"

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// start runs the controller until the test ends. It has the rights of deploy/rbac for this controller alone, so that the tests also
// show that they are enough.
func start(t *testing.T, window time.Duration) {
	t.Helper()
	startAt(t, window, clock.RealClock{})
}

// startAt is start with a clock.
func startAt(t *testing.T, window time.Duration, clock clock.WithTicker) *controlplane.Loop {
	t.Helper()
	return controlplane.Standby(t, controlplane.LoopOptions{Config: cluster.ManagerConfig("node-controller", tainteviction.Name)}, func(b controlplane.LoopBase) ([]controlplane.RunFunc, error) {
		pods, err1 := b.Caches.Pods()
		nodes, err2 := b.Caches.Nodes()
		c, err3 := tainteviction.New(tainteviction.Config{Workers: 8, TrustWindow: window}, tainteviction.Deps{
			Client: b.Client, Pods: pods, Nodes: nodes, Clock: clock, Metrics: b.Metrics, Recorder: b.Recorder(tainteviction.Name),
		})
		return []controlplane.RunFunc{c.Run}, errors.Join(err1, err2, err3)
	}).BeginTerm()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// createNode creates a node that is Ready as said, and goes with the test.
func createNode(t *testing.T, client kubernetes.Interface, ready corev1.ConditionStatus, taints ...corev1.Taint) string {
	t.Helper()
	node, err := client.CoreV1().Nodes().Create(t.Context(), controlplane.Node("", func(n *corev1.Node) {
		n.GenerateName, n.Spec.Taints = "node-", taints
	}), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	postReady(t, client, node.Name, ready)
	return node.Name
}

func postReady(t *testing.T, client kubernetes.Interface, node string, ready corev1.ConditionStatus) {
	t.Helper()
	patchNode(t, client, node, corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}}}.Status, "status")
}

// setTaints replaces the taints of a node.
func setTaints(t *testing.T, client kubernetes.Interface, node string, taints ...corev1.Taint) {
	t.Helper()
	patchNode(t, client, node, map[string]any{"taints": taints}, "spec")
}

func patchNode(t *testing.T, client kubernetes.Interface, node string, value any, field string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{field: value})
	must(t, err)
	var sub []string
	if field == "status" {
		sub = []string{"status"}
	}
	_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, sub...)
	must(t, err)
}

// renew plays the kubelet's heartbeat.
func renew(t *testing.T, client kubernetes.Interface, node string, at time.Time) {
	t.Helper()
	leases, now := client.CoordinationV1().Leases(corev1.NamespaceNodeLease), metav1.NewMicroTime(at)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		found, getErr := leases.Get(t.Context(), node, metav1.GetOptions{})
		must(t, getErr)
		found.Spec.RenewTime = &now
		_, err = leases.Update(t.Context(), found, metav1.UpdateOptions{})
	}
	must(t, err)
	t.Cleanup(func() {
		if err := leases.Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// createPod creates a pod on a node, scheduled there an hour and a half ago.
func createPod(t *testing.T, client kubernetes.Interface, namespace, name, node string, edits ...func(*corev1.Pod)) {
	t.Helper()
	edits = append([]func(*corev1.Pod){func(p *corev1.Pod) { p.Spec.NodeName = node }}, edits...)
	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), controlplane.Pod(namespace, name, map[string]string{"name": name}, edits...), metav1.CreateOptions{})
	must(t, err)
	controlplane.SetPodStatus(t, client, namespace, name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-90 * time.Minute)),
		}}
	})
}

const evictKey, evictValue = "kubernetes.io/e2e-evict-taint-key", "evictTaintVal"

// evictTaint is the taint of upstream's end-to-end tests. Nobody sets its time, as with kubectl.
func evictTaint() corev1.Taint {
	return corev1.Taint{Key: evictKey, Value: evictValue, Effect: corev1.TaintEffectNoExecute}
}

// tolerates has a pod tolerate the taint of a key for ever, or for some seconds.
func tolerates(key string, seconds ...int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		if len(seconds) > 0 {
			toleration.TolerationSeconds = &seconds[0]
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, toleration)
	}
}

// evicted waits until a pod is terminating and returns it.
func evicted(t *testing.T, client kubernetes.Interface, namespace, name string) *corev1.Pod {
	t.Helper()
	return evictedWhile(t, client, namespace, name, func() {})
}

// evictedWhile is evicted while something is done again and again.
func evictedWhile(t *testing.T, client kubernetes.Interface, namespace, name string, do func()) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	controlplane.Eventually(t, patience, func(ctx context.Context) (err error) {
		do()
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.DeletionTimestamp == nil {
			return fmt.Errorf("pod %s is not terminating", name)
		}
		return nil
	})
	return pod
}

// stays watches for some time that a pod is not evicted.
func stays(t *testing.T, client kubernetes.Interface, namespace, name string, d time.Duration) {
	t.Helper()
	controlplane.Consistently(t, d, func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (pod.DeletionTimestamp != nil || controlplane.Disruption(pod) != nil) {
			err = errors.New("pod " + name + " is being evicted")
		}
		return err
	})
}
