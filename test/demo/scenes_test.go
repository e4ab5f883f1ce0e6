package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"minikcm/test/controlplane"
	"minikcm/test/must"
)

func TestPlaceOfAPodWithoutANode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}
	if got, want := describePlace(pod), "web-1, not scheduled yet"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRolloutCountsActivePodsInsteadOfStatuses(t *testing.T) {
	d := controlplane.Deployment(shop, shop, shopReplicas)
	d.Status = appsv1.DeploymentStatus{Replicas: 11, UpdatedReplicas: 11, AvailableReplicas: 11}
	pod := func(name, image string, edit func(*corev1.Pod)) *corev1.Pod {
		return controlplane.Pod(shop, name, nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }, edit)
	}
	s := newStage("")
	s.client = fake.NewClientBuilder().WithObjects(d,
		pod("new", newImage, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		pod("old", oldImage, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		pod("failed", newImage, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		pod("leaves", newImage, func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{pinned}
		}),
	).Build()
	var got shopPods
	if err := must.Catch(func() {
		s.awaitShop(t.Context(), newImage, func(pods shopPods) bool { got = pods; return true })
	}); err != nil || got != (shopPods{active: 2, updated: 1}) {
		t.Errorf("counted %+v, error %v; want two active pods, one of the new template", got, err)
	}
}
