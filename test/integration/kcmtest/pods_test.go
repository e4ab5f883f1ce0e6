package kcmtest

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if err := client.AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hasPods(t, client, namespace, 0, func(*corev1.Pod) bool { return true }) // collected with their owners
	deleteNamespace(t, client, namespace)
}
