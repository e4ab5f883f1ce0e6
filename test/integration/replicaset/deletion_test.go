package replicaset

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

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
