package deployment

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func TestScaling(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		edit func(*appsv1.Deployment)
	}{{"RollingUpdate", func(*appsv1.Deployment) {}}, {"Recreate", recreate}} {
		t.Run(tt.name, func(t *testing.T) {
			n, _ := side(t)
			d := n.apply(2, tt.edit)
			n.complete()
			for _, to := range []int32{0, 1, 5, 3} {
				scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: n.name, Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: to}}
				if _, err := n.client.AppsV1().Deployments(n.name).UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				_, s := n.complete()
				if s.Annotations[desiredKey] != fmt.Sprint(to) {
					t.Errorf("at %d replicas annotations are %v", to, s.Annotations)
				}
			}
			_ = d
		})
	}
}

func TestScalingWhileRollingOutIsProportional(t *testing.T) {
	n, _ := side(t)
	n.apply(10, rolling("3", "2"))
	n.complete()
	n.kubelet.Ready(tagged("v1"))
	n.edit(image("v2"))
	n.set("v2", 5)
	n.set("v1", 8)
	n.status(func(s appsv1.DeploymentStatus) bool { return s.AvailableReplicas == 8 && s.UpdatedReplicas == 5 })
	n.edit(replicas(30))
	n.set("v1", 20)
	n.set("v2", 13)
	n.annotated(30, 33)
	n.edit(replicas(5))
	n.observed()
	n.sum(8)
	n.annotated(5, 8)
	n.kubelet.Ready(controlplane.All)
	n.complete()
}

func TestAPausedDeploymentIsScaledButNotRolledOut(t *testing.T) {
	n, _ := side(t)
	n.apply(1, paused(true))
	n.observed()
	if _, sets := n.owned(); len(sets) != 0 {
		t.Errorf("paused from the start, there are ReplicaSets %v", names(sets))
	}
	n.edit(paused(false))
	n.complete()
	n.edit(paused(true))
	if c := n.condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused"); c.Message != "Deployment is paused" {
		t.Errorf("Progressing says %q", c.Message)
	}
	n.edit(image("v2"))
	n.edit(replicas(3))
	n.observed()
	n.set("v1", 3)
	n.status(func(s appsv1.DeploymentStatus) bool { return s.AvailableReplicas == 3 && s.UpdatedReplicas == 0 })
	if _, sets := n.owned(); len(sets) != 1 {
		t.Errorf("paused, there are ReplicaSets %v", names(sets))
	}
	n.kubelet.Ready(controlplane.None)
	n.edit(paused(false))
	n.eventually(func(context.Context) error {
		c := conditionOf(n.get().Status, appsv1.DeploymentProgressing)
		if c == nil || c.Reason == "DeploymentPaused" {
			return fmt.Errorf("Progressing is %+v", c)
		}
		return nil
	})
	n.kubelet.Ready(controlplane.All)
	n.complete()
	n.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
}

func (n *namespace) annotated(desired, most int) {
	n.t.Helper()
	n.eventually(func(context.Context) error {
		_, sets := n.owned()
		for i := range sets {
			s := &sets[i]
			if *s.Spec.Replicas > 0 && (s.Annotations[desiredKey] != fmt.Sprint(desired) || s.Annotations[maxKey] != fmt.Sprint(most)) {
				return fmt.Errorf("annotations of %s are %v, want %d and %d", s.Name, s.Annotations, desired, most)
			}
		}
		return nil
	})
}

// sum waits until the sizes add up to so many.
func (n *namespace) sum(want int32) {
	n.t.Helper()
	n.eventually(func(context.Context) error {
		_, sets := n.owned()
		sum := int32(0)
		for i := range sets {
			sum += *sets[i].Spec.Replicas
		}
		if sum != want {
			return fmt.Errorf("sizes add up to %d, want %d: %v", sum, want, names(sets))
		}
		return nil
	})
}
