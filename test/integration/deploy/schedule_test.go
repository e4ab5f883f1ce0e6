package deploy

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"minikcm/test/controlplane"
)

// No manager runs here, so the nodes keep the taints that only a manager takes away: that of every new node, and those that the last
// leader left to a node that was silent.
func TestReplicasStartInAClusterThatWasOff(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	s := startScheduler(t)
	s.node(t, "off-a")
	s.node(t, "off-b",
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	s.replica(t, "old-1", "old")
	s.replica(t, "old-2", "old")
	s.expect(t, map[string]int{"off-a": 1, "off-b": 1}, "old-1", "old-2")
	// The replicas of a roll-out keep apart from each other, not from those they replace.
	s.replica(t, "new-1", "new")
	s.replica(t, "new-2", "new")
	s.expect(t, map[string]int{"off-a": 1, "off-b": 1}, "new-1", "new-2")
}

func TestTheOnlyNodeGetsOneReplica(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	s := startScheduler(t)
	s.node(t, "only")
	s.node(t, "reserved", corev1.Taint{Key: "example.com/reserved", Effect: corev1.TaintEffectNoSchedule})
	s.replica(t, "lone-1", "lone")
	s.replica(t, "lone-2", "lone")
	s.expect(t, map[string]int{"only": 1, refused: 1}, "lone-1", "lone-2")
}

// scheduler is a kube-scheduler that runs, with what it gets to schedule.
type scheduler struct {
	client kubernetes.Interface
}

func startScheduler(t *testing.T) scheduler {
	t.Helper()
	controlplane.StartProgram(t, built(t, "kube-scheduler"), "--kubeconfig="+cluster.Kubeconfig(t, "system:kube-scheduler"), "--leader-elect=false", "--secure-port=0")
	return scheduler{client: cluster.Client(t)}
}

// node makes one whose kubelet is well, as its admission and the taints leave it.
func (s scheduler) node(t *testing.T, name string, taints ...corev1.Taint) {
	t.Helper()
	_, err := s.client.CoreV1().Nodes().Create(t.Context(), controlplane.Node(name, func(n *corev1.Node) { n.Spec.Taints = taints }), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = s.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	controlplane.MarkNodeReady(t, s.client, name)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		n, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
		n.Status.Allocatable = n.Status.Capacity
		_, err = s.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// replica makes a pod as the ReplicaSet of that hash would.
func (s scheduler) replica(t *testing.T, name, hash string) {
	t.Helper()
	template := deployment(t).Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: template.Labels}, Spec: template.Spec}
	pod.Labels["pod-template-hash"] = hash
	_, err := s.client.CoreV1().Pods("kube-system").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = s.client.CoreV1().Pods("kube-system").Delete(context.Background(), name, *metav1.NewDeleteOptions(0))
	})
}

// refused is where pods are that the scheduler found no node for.
const refused = "no node"

// expect waits until the pods are on these nodes.
func (s scheduler) expect(t *testing.T, want map[string]int, names ...string) {
	t.Helper()
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		on, err := s.placed(ctx, names...)
		if err == nil && !maps.Equal(on, want) {
			err = fmt.Errorf("pods by node are %v, want %v", on, want)
		}
		return err
	})
}

// placed counts the pods by node.
func (s scheduler) placed(ctx context.Context, names ...string) (map[string]int, error) {
	on := map[string]int{}
	for _, name := range names {
		pod, err := s.client.CoreV1().Pods("kube-system").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		node := pod.Spec.NodeName
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				node = refused
			}
		}
		on[node]++
	}
	return on, nil
}
