package suite

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/examples/envtest/site"
	"minikcm/kcmtest"
)

// After: one call, and the test checks results that users of the operator see.
func TestSite(t *testing.T) {
	began := time.Now()
	kcmtest.Start(t, cfg, kcmtest.PodsReady())
	logDuration(t, "controllers started", began)

	c := operate(t)
	ns := namespace(t, c)
	front := newSite(t, c, ns.Name)
	key := client.ObjectKeyFromObject(front)

	eventually(t, "Site ready, with three pods", func() error { return ready(t, c, key, 3) })

	before := front.DeepCopyObject().(*site.Site)
	front.Spec.Replicas = 1
	must(t, c.Patch(t.Context(), front, client.MergeFrom(before)))
	eventually(t, "Site scaled down to one pod", func() error { return ready(t, c, key, 1) })

	must(t, c.Delete(t.Context(), front))
	eventually(t, "Site deleted, and all that it owned", func() error {
		return none(t, c, ns.Name, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}, &corev1.PodList{})
	})

	must(t, c.Delete(t.Context(), ns))
	eventually(t, "namespace gone", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace is %s (%v)", ns.Status.Phase, err)
		}
		return nil
	})
}

func none(t *testing.T, c client.Client, ns string, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := c.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			return err
		}
		if n := meta.LenList(list); n > 0 {
			return fmt.Errorf("%d of %T are left", n, list)
		}
	}
	return nil
}
