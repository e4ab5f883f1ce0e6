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
