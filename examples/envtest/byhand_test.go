package suite

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/examples/envtest/site"
)

// Before: the test does the control plane's work, or leaves it out.
func TestSiteByHand(t *testing.T) {
	c := operate(t)
	ns := namespace(t, c)
	front := newSite(t, c, ns.Name)
	key := client.ObjectKeyFromObject(front)

	var pods appsv1.Deployment
	eventually(t, "Deployment made", func() error { return c.Get(t.Context(), key, &pods) })

	// Without pods the test writes their status. Whether the template is valid is not tested.
	pods.Status = appsv1.DeploymentStatus{ObservedGeneration: pods.Generation, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
	must(t, c.Status().Update(t.Context(), &pods))
	eventually(t, "Site ready", func() error { return ready(t, c, key, 3) })

	// Without a garbage collector the test reads the owner reference.
	var page corev1.ConfigMap
	must(t, c.Get(t.Context(), key, &page))
	for _, o := range []client.Object{&page, &pods} {
		if !metav1.IsControlledBy(o, front) {
			t.Errorf("%T has owners %v, want the Site", o, o.GetOwnerReferences())
		}
	}
	// The test deletes its objects. The namespace stays Terminating, so the next test needs another name.
	for _, o := range []client.Object{front, &page, &pods, ns} {
		must(t, c.Delete(t.Context(), o))
	}
}

func ready(t *testing.T, c client.Client, key client.ObjectKey, n int32) error {
	var s site.Site
	if err := c.Get(t.Context(), key, &s); err != nil {
		return err
	}
	if s.Status.Ready != n {
		return fmt.Errorf("%d pods are ready, want %d", s.Status.Ready, n)
	}
	return nil
}
