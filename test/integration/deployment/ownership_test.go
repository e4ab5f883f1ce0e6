package deployment

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// testReplicaSetWithOtherLabelsIsReleased: another ReplicaSet takes its place, and with its old labels it is adopted
// again.
func testReplicaSetWithOtherLabelsIsReleased(t *testing.T, _ *manager) {
	n := newNamespace(t)
	d := n.apply(1)
	_, s := n.complete()
	n.editSet(s.Name, func(s *appsv1.ReplicaSet) { s.Labels["app"] = "other" })
	n.eventually(func(ctx context.Context) error {
		now, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(now.OwnerReferences) != 0 {
			return fmt.Errorf("owners are %+v", now.OwnerReferences)
		}
		return nil
	})
	n.eventually(func(ctx context.Context) error {
		got, second, err := n.completed(ctx, "web")
		if err == nil && (second.UID == s.UID || second.Name == s.Name || ptr.Deref(got.Status.CollisionCount, 0) != 1) {
			err = fmt.Errorf("the present ReplicaSet is %s, collisions are %d", second.Name, ptr.Deref(got.Status.CollisionCount, 0))
		}
		return err
	})
	n.editSet(s.Name, func(s *appsv1.ReplicaSet) { s.Labels["app"] = "web" })
	n.eventually(func(ctx context.Context) error {
		sets, err := n.sets(ctx, d)
		if err == nil && len(sets) != 2 {
			err = fmt.Errorf("ReplicaSets are %v, want both", names(sets))
		}
		return err
	})
	n.complete()
}
