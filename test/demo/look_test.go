package main

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestPlacementOfAPodWithoutANode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}
	if got, want := placement(pod), "web-1, not scheduled yet"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRolloutCountsActivePodsInsteadOfStatuses(t *testing.T) {
	d := shopDeployment()
	d.Status = appsv1.DeploymentStatus{Replicas: 11, UpdatedReplicas: 11, AvailableReplicas: 11}
	pod := func(name string, phase corev1.PodPhase, deleted *metav1.Time) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, DeletionTimestamp: deleted},
			Spec:       d.Spec.Template.Spec, Status: corev1.PodStatus{Phase: phase},
		}
	}
	s := &stage{client: fake.NewClientset(d, pod("runs", corev1.PodRunning, nil), pod("failed", corev1.PodFailed, nil), pod("leaves", corev1.PodRunning, new(metav1.Now())))}
	if seen, done, err := s.updated(1)(t.Context()); seen != "1 pods, 1 of the current template, 0 ready" || !done || err != nil {
		t.Errorf("seen %q, done %v, error %v; want one pod", seen, done, err)
	}
}
