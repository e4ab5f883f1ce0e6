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

func TestRolloutShowsNoStatusOfAnEarlierTemplate(t *testing.T) {
	d := shopDeployment()
	d.Generation = 2
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: shopReplicas, UpdatedReplicas: shopReplicas, AvailableReplicas: shopReplicas}
	s := &stage{client: fake.NewClientset(d)}
	if seen, done, err := s.updated(1)(t.Context()); seen != "" || done || err != nil {
		t.Errorf("seen %q, done %v, error %v; want nothing yet", seen, done, err)
	}
}
