package deployment

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
)

// TestARolloutThatDoesNotProgressInTimeHasFailed: a rollout that succeeds after its deadline is complete.
func TestARolloutThatDoesNotProgressInTimeHasFailed(t *testing.T) {
	n, _ := side(t)
	n.kubelet.Ready(controlplane.None)
	n.apply(1, deadline(3))
	failed := n.condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	_, sets := n.owned()
	if want := fmt.Sprintf("ReplicaSet %q has timed out progressing.", sets[0].Name); failed.Message != want {
		t.Errorf("Progressing says %q, want %q", failed.Message, want)
	}
	if waited := failed.LastTransitionTime.Sub(sets[0].CreationTimestamp.Time); waited < 3*time.Second {
		t.Errorf("the deadline of 3 s was found exceeded after %v", waited)
	}
	n.kubelet.Ready(controlplane.All)
	n.complete()
	n.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
}
