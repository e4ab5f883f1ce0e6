package deployment

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

// TestARolloutThatDoesNotProgressInTimeHasFailed: the condition says so when the deadline passes, and the rollout that gets on after all is
// complete.
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

// TestARolloutThatIsUndoneDoesNotInheritTheDeadline: `kubectl rollout status` would report the failure of the rollout before. Upstream fails.
func TestARolloutThatIsUndoneDoesNotInheritTheDeadline(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	n, _ := side(t)
	n.apply(2, deadline(2), rolling("1", "1"))
	n.complete()
	n.kubelet.Ready(controlplane.None)
	n.edit(image("broken"))
	n.condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	d := n.edit(image("v1"), deadline(600))
	n.eventually(func(ctx context.Context) error {
		now, err := n.client.AppsV1().Deployments(n.name).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.Status.ObservedGeneration < d.Generation {
			return fmt.Errorf("generation %d has not been observed", d.Generation)
		}
		if c := conditionOf(now.Status, appsv1.DeploymentProgressing); c == nil || c.Status != corev1.ConditionTrue {
			t.Fatalf("at the generation that went back, Progressing is %+v", c)
		}
		return nil
	})
	n.kubelet.Ready(controlplane.All)
	n.complete()
}

// TestWithoutADeadlineThereIsNoProgressing: the condition goes when the deadline does.
func TestWithoutADeadlineThereIsNoProgressing(t *testing.T) {
	n, _ := side(t)
	n.apply(1)
	n.complete()
	n.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
	const never = 1<<31 - 1
	n.edit(deadline(never))
	n.status(func(s appsv1.DeploymentStatus) bool { return conditionOf(s, appsv1.DeploymentProgressing) == nil })
	n.edit(image("v2"))
	n.complete()
	if c := conditionOf(n.get().Status, appsv1.DeploymentProgressing); c != nil {
		t.Errorf("Progressing is %+v", c)
	}
}

// TestRefusedPodsAreToldOfByTheDeployment: ReplicaFailure is that of the ReplicaSet, and goes with it.
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

// TestStatusCountsEndingPods: as soon as the API server has the field.
func TestStatusCountsEndingPods(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	n, _ := side(t)
	n.apply(3, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeName = "somewhere" })
	n.complete()
	n.kubelet.Gone(controlplane.None)
	n.edit(replicas(1))
	n.status(func(s appsv1.DeploymentStatus) bool {
		return s.Replicas == 1 && ptr.Deref(s.TerminatingReplicas, -1) == 2
	})
	n.kubelet.Gone(controlplane.All)
	n.status(func(s appsv1.DeploymentStatus) bool { return ptr.Deref(s.TerminatingReplicas, -1) == 0 })
}
