package kcmtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

// The tests of many operators are specs.
var _ kcmtest.TB = (*ginkgo.GinkgoTBWrapper)(nil)

var _ = ginkgo.It("makes pods that get ready and go", func(ctx ginkgo.SpecContext) {
	t := ginkgo.GinkgoTB()
	kcmtest.Start(t, cluster.Config(), kcmtest.PodsReady())
	client := cluster.Client(t)
	namespace := newNamespace(t, client)
	deployments := client.AppsV1().Deployments(namespace)
	web := controlplane.Deployment(namespace, "web", 3, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "any" })
	if _, err := deployments.Create(ctx, web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		d, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 3 {
			err = fmt.Errorf("%d replicas are available, want 3", d.Status.AvailableReplicas)
		}
		return err
	})
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	hasPods(t, client, namespace, 0, func(*corev1.Pod) bool { return true }) // collected with their owners
	deleteNamespace(t, client, namespace)
})

var specs sync.Once

func TestSpecs(t *testing.T) {
	specs.Do(func() { ginkgo.RunSpecs(t, "kcmtest") })
}
