package endpointslice

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

// Upstream's TestEndpointsHeadlessLabel and TestEndpointsControllersLabelSemantics, the part about slices.
func TestLabelsOfSlices(t *testing.T) {
	start(t)
	w := newWorld(t)
	labels := func(service, want, absent string) {
		t.Helper()
		w.eventually(func(ctx context.Context) error {
			all, err := w.slices(ctx, service)
			if err != nil || len(all) != 1 {
				return fmt.Errorf("%d slices, %v", len(all), err)
			}
			_, has := all[0].Labels[want]
			_, still := all[0].Labels[absent]
			if !has || still {
				return fmt.Errorf("labels %v", all[0].Labels)
			}
			return nil
		})
	}
	withIP := func(s *corev1.Service) { s.Spec.ClusterIP = "" }
	labelled := func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: "", "a": "b"} }
	w.service("plain", withIP)
	w.service("plain-labelled", withIP, labelled)
	w.service("headless")
	w.service("headless-labelled", labelled)
	labels("plain", discoveryv1.LabelServiceName, corev1.IsHeadlessService)
	labels("plain-labelled", "a", corev1.IsHeadlessService)
	labels("headless", corev1.IsHeadlessService, "a")
	labels("headless-labelled", corev1.IsHeadlessService, "c")
	_, err := w.client.CoreV1().Services(w.ns).Patch(t.Context(), "headless-labelled", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":null,"c":"d"}}}`), metav1.PatchOptions{})
	w.must(err)
	labels("headless-labelled", "c", "a")
}

// Each IP family of a Service has slices of its own. Pods without an address of a family are left out.
func TestDualStack(t *testing.T) {
	start(t)
	w := newWorld(t)
	for policy, want := range map[corev1.IPFamilyPolicy]map[discoveryv1.AddressType]int{
		corev1.IPFamilyPolicySingleStack:      {discoveryv1.AddressTypeIPv4: 5},
		corev1.IPFamilyPolicyPreferDualStack:  {discoveryv1.AddressTypeIPv4: 5, discoveryv1.AddressTypeIPv6: 4},
		corev1.IPFamilyPolicyRequireDualStack: {discoveryv1.AddressTypeIPv4: 5, discoveryv1.AddressTypeIPv6: 4},
	} {
		name := strings.ToLower(string(policy))
		w.service(name, func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.IPFamilyPolicy = "", &policy })
		w.pods(name, 1, 5)
		for i := 2; i <= 5; i++ {
			w.setReady(fmt.Sprint(name, "-", i), corev1.ConditionTrue, fmt.Sprint("10.0.0.", i), fmt.Sprint("fd00::", i))
		}
		w.eventually(func(ctx context.Context) error {
			all, err := w.slices(ctx, name)
			if err != nil {
				return err
			}
			got := map[discoveryv1.AddressType]int{}
			for _, slice := range all {
				got[slice.AddressType] += len(slice.Endpoints)
			}
			if len(all) != 2*len(want) || !maps.Equal(got, want) { // five endpoints need two slices, four as well
				return fmt.Errorf("%s: %d slices with endpoints %v, want %v", policy, len(all), got, want)
			}
			return nil
		})
	}
}

// A Service over its life, with slices that are changed by hand.
func TestLife(t *testing.T) {
	start(t)
	w := newWorld(t)
	service := w.service("web")
	w.pods("web", 1, 7)
	w.gets("web", 1, 7)
	all, err := w.slices(t.Context(), "web")
	w.must(err)
	for _, slice := range all {
		if owner := metav1.GetControllerOf(&slice); owner == nil || owner.UID != service.UID || !*owner.BlockOwnerDeletion {
			t.Errorf("owner of %s is %+v", slice.Name, owner)
		}
		if len(slice.Ports) != 1 || *slice.Ports[0].Port != 8080 || slice.AddressType != discoveryv1.AddressTypeIPv4 {
			t.Errorf("slice %+v", slice)
		}
	}
	w.remove("web", 1, 1)
	w.gets("web", 2, 7)
	all, err = w.slices(t.Context(), "web") // the slice of the removed pod may be gone
	w.must(err)
	w.must(w.client.DiscoveryV1().EndpointSlices(w.ns).Delete(t.Context(), all[0].Name, metav1.DeleteOptions{}))
	w.gets("web", 2, 7)
	w.must(w.client.DiscoveryV1().EndpointSlices(w.ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.eventually(func(ctx context.Context) error {
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
}

// Unchanged Services cost the next leader no write.
func TestTakeOverSendsNothing(t *testing.T) {
	const services = 100
	w := newWorld(t)
	first := start(t)
	for i := range services {
		w.service(fmt.Sprint("s", i))
	}
	w.pods("s1", 1, 7)
	w.eventually(func(ctx context.Context) error {
		list, err := w.client.DiscoveryV1().EndpointSlices(w.ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != services+2 {
			err = fmt.Errorf("%d slices, want %d", len(list.Items), services+2)
		}
		return err
	})
	w.gets("s1", 1, 7)
	first.Stop()
	begin := time.Now()
	standby(t, managerConfig("second"), nil).BeginTerm()
	// Longer than the delay of any sync.
	controlplane.Consistently(t, 3*time.Second, func(context.Context) error {
		sent := cluster.AuditLogSince(t, begin, controlplane.ByUser(controlplane.ServiceAccount("second")),
			controlplane.ByNamespace(w.ns), controlplane.ByResource("endpointslices"), controlplane.Writes)
		if len(sent) > 0 {
			return fmt.Errorf("writes of the second leader:\n%s", sent)
		}
		return nil
	})
}
