package suite

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"minikcm/kcmtest"
)

// A Service in front of a Deployment gets endpoints. Pods need a node that exists: pods without a node have no address.
func TestServiceGetsEndpoints(t *testing.T) {
	kcmtest.Start(t, cfg, kcmtest.PodsReady(), kcmtest.Controllers("replicaset", "deployment", "endpointslice"))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	ns := namespace(t, c).Name
	labels, replicas := map[string]string{"app": "web"}, int32(2)
	meta := metav1.ObjectMeta{Namespace: ns, Name: "web"}
	for _, object := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{NodeName: ns, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		}},
	} {
		must(t, c.Create(t.Context(), object))
	}
	eventually(t, "Service has two ready endpoints", func() error {
		var slices discoveryv1.EndpointSliceList
		if err := c.List(t.Context(), &slices, client.InNamespace(ns), client.MatchingLabels{discoveryv1.LabelServiceName: "web"}); err != nil {
			return err
		}
		ready := 0
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if *endpoint.Conditions.Ready {
					ready++
				}
			}
		}
		if ready != 2 {
			return fmt.Errorf("%d ready endpoints in %d slices", ready, len(slices.Items))
		}
		return nil
	})
}
