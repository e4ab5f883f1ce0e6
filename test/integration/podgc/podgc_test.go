package podgc

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"minikcm/test/controlplane"
)

var orphanCondition = &corev1.PodCondition{
	Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 1,
	Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
}

func checkDisruption(t *testing.T, pod *corev1.Pod, want *corev1.PodCondition) {
	t.Helper()
	got := controlplane.Disruption(pod)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(corev1.PodCondition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("condition DisruptionTarget (-want +got):\n%s", diff)
	}
	if got != nil && got.LastTransitionTime.IsZero() {
		t.Error("condition DisruptionTarget has no transition time")
	}
}

// Upstream's test/integration/podgc TestPodGcOrphanedPodsWithFinalizer.
func TestOrphanedPodsWithFinalizer(t *testing.T) {
	for _, tt := range []struct {
		phase, want corev1.PodPhase
		condition   *corev1.PodCondition
	}{
		{corev1.PodPending, corev1.PodFailed, orphanCondition},
		{corev1.PodSucceeded, corev1.PodSucceeded, nil},
		{corev1.PodFailed, corev1.PodFailed, nil},
	} {
		t.Run(string(tt.phase), func(t *testing.T) {
			client, ns := cluster.Client(t), cluster.Namespace(t)
			node := createNode(t, client)
			pod := createPod(t, client, ns, node, finalized)
			controlplane.SetPodPhase(t, client, ns, pod.Name, tt.phase)
			start(t, 0)
			must(t, client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
			pod = eventually(t, client, pod, isTerminating)
			checkDisruption(t, pod, tt.condition)
			must(t, hasPhase(tt.want)(pod))
		})
	}
}

// Upstream's test/integration/podgc TestTerminatingOnOutOfServiceNode; its first and third case are one.
func TestTerminatingOnOutOfServiceNode(t *testing.T) {
	grace := int64(300)
	for _, tt := range []struct {
		name  string
		edits []func(*corev1.Pod)
		want  func(*corev1.Pod) error
	}{
		{"held by a finalizer: has failed", []func(*corev1.Pod){finalized}, hasPhase(corev1.PodFailed)},
		{"not held: is gone", nil, isGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, ns := cluster.Client(t), cluster.Namespace(t)
			node := createNode(t, client) // never posted Ready
			pod := createPod(t, client, ns, node, tt.edits...)
			start(t, 0)
			must(t, client.CoreV1().Pods(ns).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}))
			eventually(t, client, pod, isTerminating)
			patch := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoExecute"}]}}`, corev1.TaintNodeOutOfService)
			_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			must(t, err)
			if pod = eventually(t, client, pod, tt.want); pod != nil {
				checkDisruption(t, pod, nil)
			}
		})
	}
}

// Upstream's test/integration/podgc TestPodGcForPodsWithDuplicatedFieldKeys.
func TestDuplicatedFieldKeys(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*corev1.Container)
	}{
		{"environment", func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "XYZ", Value: "1"}, {Name: "XYZ", Value: "2"}}
		}},
		{"ports", func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 93, HostPort: 9376}, {ContainerPort: 93, HostPort: 9377}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, ns := cluster.Client(t), cluster.Namespace(t)
			start(t, 0)
			pod := createPod(t, client, ns, "non-existing-node", finalized, func(p *corev1.Pod) { tt.edit(&p.Spec.Containers[0]) })
			found := eventually(t, client, pod, isTerminating)
			checkDisruption(t, found, orphanCondition)
			must(t, hasPhase(corev1.PodFailed)(found))
			if diff := cmp.Diff(pod.Spec.Containers, found.Spec.Containers); diff != "" {
				t.Errorf("containers changed (-before +after):\n%s", diff)
			}
		})
	}
}

// A node that is back within the quarantine keeps its pods.
func TestNodeBackInTime(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node := createNode(t, client)
	pod, witness := createPod(t, client, ns, node), createPod(t, client, ns, "never-there")
	now := testingclock.NewFakeClock(time.Now()) // the quarantine lasts until the test says so
	startAt(t, 0, now)
	stays := func(ctx context.Context) error {
		found, err := client.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && found.DeletionTimestamp != nil {
			err = fmt.Errorf("pod %s was deleted", pod.Name)
		}
		return err
	}
	must(t, client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}))
	controlplane.Consistently(t, 300*time.Millisecond, stays)
	createNode(t, client, func(n *corev1.Node) { n.Name = node })
	eventually(t, client, witness, func(p *corev1.Pod) error { // went through a quarantine that began no later
		now.Step(100 * time.Millisecond)
		return isGone(p)
	})
	controlplane.Consistently(t, time.Second, stays)
}

// The API server has deleted such a pod already, as far as it can.
func TestUnscheduledTerminating(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	start(t, 0)
	pod := createPod(t, client, ns, "", finalized)
	must(t, client.CoreV1().Pods(ns).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	checkDisruption(t, eventually(t, client, pod, hasPhase(corev1.PodFailed)), nil)
}

// The end-to-end test "Pod garbage collector" with fewer pods: a kubelet's evictions go first, then the oldest.
func TestFinishedPods(t *testing.T) {
	const threshold = 10
	client, ns := cluster.Client(t), cluster.Namespace(t)
	node := createNode(t, client)
	var names []string
	for i := range 15 {
		pod := createPod(t, client, ns, node, func(p *corev1.Pod) { p.Name, p.GenerateName = fmt.Sprintf("p%02d", i), "" })
		controlplane.SetPodStatus(t, client, ns, pod.Name, func(s *corev1.PodStatus) {
			s.Phase = corev1.PodFailed
			if i == 14 {
				s.Reason = "Evicted"
			}
		})
		if i >= 4 && i != 14 {
			names = append(names, pod.Name)
		}
	}
	start(t, threshold)
	left := func(ctx context.Context) error {
		list, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, pod := range list.Items {
			got = append(got, pod.Name)
		}
		if !slices.Equal(got, names) {
			return fmt.Errorf("left are %v, want %v", got, names)
		}
		return nil
	}
	controlplane.Eventually(t, patience, left)
	controlplane.Consistently(t, 2*time.Second, left)
}

// A pod that a finalizer holds is deleted once and then left in peace, also by the manager that comes next.
func TestHeldPodsAreDeletedOnce(t *testing.T) {
	client, ns := cluster.Client(t), cluster.Namespace(t)
	pod := createPod(t, client, ns, "never-there", finalized)
	for range 2 {
		t.Run("manager", func(t *testing.T) {
			start(t, 0)
			witness := createPod(t, client, ns, "never-there-either")
			eventually(t, client, witness, isGone) // so the quarantine is over for the other as well
			eventually(t, client, pod, isTerminating)
		})
	}
	count := map[string]int{}
	for _, e := range cluster.AuditLog(t) {
		if ref := e.ObjectRef; ref != nil && ref.Name == pod.Name && ref.Namespace == ns && e.Stage == "ResponseComplete" {
			count[e.Verb]++
		}
	}
	if count["delete"] != 1 || count["patch"] != 1 {
		t.Errorf("requests about the pod: %v, want 1 delete and 1 patch", count)
	}
}
