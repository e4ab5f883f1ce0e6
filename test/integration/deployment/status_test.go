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

func TestRefusedPodsAreToldOfByTheDeployment(t *testing.T) {
	n, _ := side(t)
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"CREATE"}, Resource: "pods", Namespace: n.name})
	hook.Deny("not today")
	n.apply(1)
	if c := n.condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate"); c.Message == "" {
		t.Error("the condition says nothing")
	}
	hook.Heal()
	n.complete()
	n.status(func(s appsv1.DeploymentStatus) bool { return conditionOf(s, appsv1.DeploymentReplicaFailure) == nil })
}
