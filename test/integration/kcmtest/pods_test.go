package kcmtest

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/kubelet"
	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

func TestPodsGetReadyAndGo(t *testing.T) {
	kcmtest.Start(t, cluster.Config(), kcmtest.PodsReady())
	client := cluster.Client(t)
	namespace := newNamespace(t, client)
	web := controlplane.Deployment(namespace, "web", 3, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "any" })
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 3 {
			err = fmt.Errorf("%d replicas are available, want 3", d.Status.AvailableReplicas)
		}
		return err
	})
	deleteNamespace(t, client, namespace)
}

// TestPodsWaitForTheirGates: scheduling gates keep pods unscheduled.
func TestPodsWaitForTheirGates(t *testing.T) {
	kcmtest.Start(t, cluster.Config(), kcmtest.PodsReady())
	client := cluster.Client(t)
	namespace := newNamespace(t, client)
	pods := client.CoreV1().Pods(namespace)
	pod := controlplane.Pod(namespace, "web", nil)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/registered"}}
	for _, p := range []*corev1.Pod{pod, controlplane.Pod(namespace, "another", nil)} {
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want kubelet.State) {
		t.Helper()
		controlplane.Eventually(t, patience, func(ctx context.Context) error {
			pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
			if err == nil && kubelet.StateOf(pod) != want {
				err = fmt.Errorf("the pod is %s, want %s", kubelet.StateOf(pod), want)
			}
			return err
		})
	}
	change := func(patch, subresource string) {
		t.Helper()
		if _, err := pods.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresource); err != nil {
			t.Fatal(err)
		}
	}
	registered := func(status corev1.ConditionStatus) {
		t.Helper()
		change(fmt.Sprintf(`{"status":{"conditions":[{"type":"example.com/registered","status":%q}]}}`, status), "status")
	}
	hasPods(t, client, namespace, 1, kubelet.IsReady)
	is(kubelet.Pending)
	change(`{"spec":{"schedulingGates":null}}`, "")
	is(kubelet.ContainersReady)
	registered(corev1.ConditionTrue)
	is(kubelet.Ready)
	registered(corev1.ConditionFalse)
	is(kubelet.ContainersReady)
}
