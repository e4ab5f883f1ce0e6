package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// TestLeasesOfTwoNamesHaveTwoLeaders: one leader for each name of a Lease, each with its own controllers.
func TestLeasesOfTwoNamesHaveTwoLeaders(t *testing.T) {
	client := cluster.Client(t)
	kubeconfig := cluster.Kubeconfig(t, "two-names", "system:masters")
	for _, args := range [][]string{
		{"--leader-elect-resource-name=one", "--controllers=replicaset"},
		{"--leader-elect-resource-name=two", "--controllers=namespace", "--namespace-deletion-grace-period=0"},
	} {
		controlplane.StartProcess(t, append(args, "--kubeconfig="+kubeconfig, "--secure-port=0")...)
	}
	namespace := cluster.Namespace(t)
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("%d pods, want 2", len(pods.Items))
		}
		return err
	})
	if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		left, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("namespace %s is still there: %+v", namespace, left.Items[0].Status)
		}
		return err
	})
	for _, name := range []string{"one", "two"} {
		lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			t.Errorf("the Lease %s is held by nobody: %+v, %v", name, lease, err)
		}
	}
}
