package endpointslice

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// A Service over its life, with slices that are changed by hand. The next leader finds the slices as it computes them.
func TestLife(t *testing.T) {
	first := start(t, "manager")
	w := newWorld(t)
	service := w.service("web")
	w.pods("web", 1, 7)
	w.gets("web", 1, 7)
	all, err := w.slices(t.Context(), "web")
	controlplane.Must(t, err)
	for _, slice := range all {
		if owner := metav1.GetControllerOf(&slice); owner == nil || owner.UID != service.UID || !*owner.BlockOwnerDeletion {
			t.Errorf("owner of %s is %+v", slice.Name, owner)
		}
		if _, headless := slice.Labels[corev1.IsHeadlessService]; !headless || len(slice.Ports) != 1 ||
			*slice.Ports[0].Port != 8080 || slice.AddressType != discoveryv1.AddressTypeIPv4 {
			t.Errorf("slice %+v", slice)
		}
	}
	controlplane.Must(t, w.client.CoreV1().Pods(w.ns).Delete(t.Context(), "web-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	w.gets("web", 2, 7)
	all, err = w.slices(t.Context(), "web") // the slice of the removed pod may be gone
	controlplane.Must(t, err)
	controlplane.Must(t, w.client.DiscoveryV1().EndpointSlices(w.ns).Delete(t.Context(), all[0].Name, metav1.DeleteOptions{}))
	w.gets("web", 2, 7)
	controlplane.Must(t, w.client.DiscoveryV1().EndpointSlices(w.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		now, err := w.slices(ctx, "web")
		for _, slice := range now {
			for _, old := range all {
				if slice.UID == old.UID {
					return fmt.Errorf("slice %s exists", slice.Name)
				}
			}
		}
		return err
	})
	w.gets("web", 2, 7)
	first.Stop()
	begin := time.Now()
	start(t, "second")
	controlplane.Consistently(t, 3*time.Second, func(context.Context) error { // longer than the delay of any sync
		sent := cluster.AuditLogSince(t, begin, controlplane.ByUser(controlplane.ServiceAccount("second")),
			controlplane.ByNamespace(w.ns), controlplane.ByResource("endpointslices"), controlplane.Writes)
		if len(sent) > 0 {
			return fmt.Errorf("writes of the second leader:\n%s", sent)
		}
		return nil
	})
}
