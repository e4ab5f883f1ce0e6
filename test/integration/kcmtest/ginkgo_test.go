package kcmtest

import (
	"sync"
	"testing"

	"github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/kcmtest"
	"minikcm/test/controlplane"
)

// The tests of many operators are specs.
var _ kcmtest.TB = (*ginkgo.GinkgoTBWrapper)(nil)

var _ = ginkgo.It("makes pods in a spec", func(ctx ginkgo.SpecContext) {
	kcmtest.Start(ginkgo.GinkgoTB(), cluster.Config(), kcmtest.PodsReady())
	client := cluster.Client(ginkgo.GinkgoTB())
	namespace := newNamespace(ginkgo.GinkgoTB(), client)
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, controlplane.Deployment(namespace, "web", 3), metav1.CreateOptions{}); err != nil {
		ginkgo.Fail(err.Error())
	}
	hasPods(ginkgo.GinkgoTB(), client, namespace, 3, controlplane.IsPodReady)
	deleteNamespace(ginkgo.GinkgoTB(), client, namespace)
})

var specs sync.Once

func TestSpecs(t *testing.T) {
	specs.Do(func() { ginkgo.RunSpecs(t, "kcmtest") })
}
