package replicaset

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// TestScaleDownRefusedAndTakenBack: a webhook rejects all deletes until the user has scaled up again. No pod may go
// then.
func TestScaleDownRefusedAndTakenBack(t *testing.T) {
	start(t, controllerConfig(), controllerConfig())
	const all = 20
	for name, template := range map[string]func(*appsv1.ReplicaSet){"pods without a node": func(*appsv1.ReplicaSet) {}, "pods on a node": onNode} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			hook := cluster.Webhook(t, controlplane.Webhook{Operations: []string{"DELETE"}, Resource: "pods", Namespace: n.name})
			rs := n.apply(all, template)
			o := n.observe(rs, 0, all)
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
			n.scale("rs", all)
			rs = n.settled("rs")
			hook.Heal()

			// The deletion of a pod by the test triggers a sync, and is the only one.
			o.bounds(all-1, all)
			if err := n.client.CoreV1().Pods(n.name).Delete(t.Context(), before[0], *metav1.NewDeleteOptions(0)); err != nil {
				t.Fatal(err)
			}
			n.eventually(func(context.Context) error {
				now := n.active(rs)
				if len(now) != all || slices.Contains(now, before[0]) {
					return fmt.Errorf("%d active pods, want %d, and %s replaced", len(now), all, before[0])
				}
				return nil
			})
			o.CatchUp()
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
