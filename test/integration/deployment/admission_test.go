package deployment

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
)

// TestWhatIsTakenBackCostsNoPods: a webhook lets no pod go, so the user wants all of them again. None may go when it has healed.
func TestWhatIsTakenBackCostsNoPods(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	t.Parallel()
	for _, tt := range []struct {
		name        string
		edit        func(*appsv1.Deployment)
		there, back func(*appsv1.Deployment)
		deletes     int
	}{
		{"a scale-down", rolling("3", "2"), replicas(2), replicas(20), 18},
		{"a scale-down, strategy Recreate", recreate, replicas(2), replicas(20), 18},
		{"a rollout", rolling("3", "2"), image("v2"), image("v1"), 2},
		{"a rollout, strategy Recreate", recreate, image("v2"), image("v1"), 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, _ := side(t)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: n.name})
			n.apply(20, tt.edit)
			n.complete()
			before := n.pods()
			n.kubelet.Ready(tagged("v1"))

			hook.Break()
			n.edit(tt.there)
			n.eventually(func(context.Context) error {
				if got := hook.Requests(); got < tt.deletes {
					return fmt.Errorf("%d deletes were refused, want %d", got, tt.deletes)
				}
				return nil
			})
			n.edit(tt.back)
			n.observed()
			n.set("v1", 20)
			hook.Heal()

			n.complete()
			now := n.pods()
			for _, pod := range before {
				if !slices.ContainsFunc(now, func(p corev1.Pod) bool { return p.UID == pod.UID && p.DeletionTimestamp == nil }) {
					t.Errorf("pod %s is gone", pod.Name)
				}
			}
		})
	}
}

// TestSlowAdmissionHoldsUpNoOtherDeployment rolls out a Deployment while the ReplicaSets of more Deployments than there are workers wait for a
// webhook.
func TestSlowAdmissionHoldsUpNoOtherDeployment(t *testing.T) {
	slow, m := side(t)
	const count = 8
	hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"CREATE"}, APIGroup: "apps", Resource: "replicasets", Namespace: slow.name, TimeoutSeconds: 30})
	hook.Hang()
	for i := range count {
		slow.applyNamed(fmt.Sprint("web-", i), 1)
	}
	slow.eventually(func(context.Context) error {
		if got := hook.Requests(); got < count {
			return fmt.Errorf("%d creates wait, want %d", got, count)
		}
		return nil
	})
	other := newNamespace(t)
	other.apply(2)
	other.complete()
	other.edit(image("v2"))
	other.complete()
	for _, r := range slow.requests(m, []string{"create"}, []string{"replicasets"}, 0) {
		if r.Code != 0 {
			t.Errorf("the other Deployment was complete only after the create of %s had ended with %d", r.Name, r.Code)
		}
	}
	hook.Heal()
	for i := range count {
		slow.completeNamed(fmt.Sprint("web-", i))
	}
}
