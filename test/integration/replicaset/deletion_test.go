package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func testDeletingAndFailedPods(t *testing.T) {
	n := newNamespace(t)
	rs := n.apply(2, onNode)
	n.settled("rs")
	names := n.active(rs)
	n.delete(names[0])
	controlplane.SetPodPhase(t, n.client, n.name, names[1], corev1.PodFailed)
	n.eventually(func(context.Context) error {
		if all, active := n.pods(), n.active(rs); len(all) != 4 || len(active) != 2 {
			return fmt.Errorf("%d pods, %d of them active", len(all), len(active))
		}
		return nil
	})
	n.settled("rs")
}

func testFinalizersAreLeftAlone(t *testing.T) {
	n := newNamespace(t)
	finalizer := "example.com/keep"
	rs := n.apply(2, func(rs *appsv1.ReplicaSet) { rs.Finalizers = []string{finalizer} })
	n.settled("rs")
	if err := n.client.AppsV1().ReplicaSets(n.name).Delete(t.Context(), "rs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// While it is being deleted it neither replaces a pod nor adopts one, and still reports what it has.
	n.delete(n.active(rs)[0])
	n.create(controlplane.Pod(n.name, "orphan", map[string]string{"app": "rs"}))
	n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 1 })
	if got := n.get("rs").Finalizers; !slices.Equal(got, []string{finalizer}) {
		t.Errorf("finalizers are %v", got)
	}
	if got := n.active(rs); len(got) != 1 {
		t.Errorf("active pods %v, want one", got)
	}
	n.edit("rs", func(rs *appsv1.ReplicaSet) { rs.Finalizers = nil })
}

func testTerminatingReplicas(t *testing.T) {
	n := newNamespace(t)
	rs := n.apply(5, onNode)
	n.settled("rs")
	terminating := func(want int32) {
		t.Helper()
		n.status("rs", func(s appsv1.ReplicaSetStatus) bool {
			return s.Replicas == 5 && s.TerminatingReplicas != nil && *s.TerminatingReplicas == want
		})
	}
	terminating(0)
	names := n.active(rs)
	n.delete(names[0])
	n.delete(names[1])
	terminating(2)
	n.delete(names[0], 0)
	terminating(1)
	n.settled("rs")
}

func testCollectionDelete(t *testing.T) {
	n := newNamespace(t)
	for _, name := range []string{"one", "two", "three"} {
		n.applyNamed(name, 1, func(rs *appsv1.ReplicaSet) { rs.Labels = map[string]string{"group": "all"} })
	}
	for _, name := range []string{"one", "two", "three"} {
		n.settled(name)
	}
	orphan := metav1.DeletePropagationBackground
	err := n.client.AppsV1().ReplicaSets(n.name).DeleteCollection(t.Context(),
		metav1.DeleteOptions{PropagationPolicy: &orphan}, metav1.ListOptions{LabelSelector: "group=all"})
	if err != nil {
		t.Fatal(err)
	}
	// Its pods are the garbage collector's: they are neither deleted nor replaced. A fourth set shows that the controller has seen the deletion, and later
	// that it has moved on.
	pods := n.pods()
	if len(pods) != 3 {
		t.Fatalf("%d pods, want 3", len(pods))
	}
	n.applyNamed("four", 1)
	n.settled("four")
	n.delete(pods[0].Name)
	n.scale("four", 2)
	n.settled("four")
	if left := n.pods(); len(left) != 4 {
		t.Errorf("%d pods, want the 2 left over and the 2 of the new set", len(left))
	}
}
