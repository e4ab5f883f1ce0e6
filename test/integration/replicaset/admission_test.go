package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"minikcm/test/controlplane"
)

// TestScaleDownRefusedAndTakenBack: a webhook rejects all deletes until the user has scaled up again. No pod may go
// then.
func TestScaleDownRefusedAndTakenBack(t *testing.T) {
	start(t, defaults())
	for _, tt := range []struct {
		name     string
		replicas int
		template func(*appsv1.ReplicaSet)
	}{
		{"20 pods without a node", 20, func(*appsv1.ReplicaSet) {}},
		{"20 pods on a node", 20, onNode},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: n.name})
			all := tt.replicas
			rs := n.apply(int32(all), tt.template)
			o := n.observe(rs, 0, all)
			n.eventually(func(context.Context) error {
				if got := n.get("rs").Status.Replicas; int(got) != all {
					return fmt.Errorf("%d replicas, want %d", got, all)
				}
				return nil
			})
			o.settledAt(all)
			before := n.active(rs)

			hook.Break()
			n.scale("rs", 2)
			n.eventually(func(context.Context) error {
				if got := hook.Requests(); got < all-2 {
					return fmt.Errorf("%d deletes were refused, want %d", got, all-2)
				}
				return nil
			})
			n.scale("rs", int32(all))
			rs = n.settled("rs")
			hook.Heal()

			// The deletion of a pod by the test triggers a sync, and is the only one.
			o.bounds(all-1, all)
			n.delete(before[0], 0)
			n.eventually(func(context.Context) error {
				now := n.active(rs)
				if len(now) != all || slices.Contains(now, before[0]) {
					return fmt.Errorf("%d active pods, want %d, and %s replaced", len(now), all, before[0])
				}
				return nil
			})
			o.catchUp()
			now := n.active(rs)
			for _, name := range before[1:] {
				if !slices.Contains(now, name) {
					t.Errorf("pod %s is gone", name)
				}
			}
			n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return failure(s) == nil })
		})
	}
}
