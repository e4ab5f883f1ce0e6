package deployment

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAnOrphanThatMatchesIsAdopted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		owners func(*appsv1.Deployment) []metav1.OwnerReference
		want   int
	}{
		{"without owners", func(*appsv1.Deployment) []metav1.OwnerReference { return nil }, 1},
		{"with an owner that is none", func(d *appsv1.Deployment) []metav1.OwnerReference {
			owner := *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
			owner.Controller = ptr.To(false)
			return []metav1.OwnerReference{owner}
		}, 1},
		{"with another owner", func(*appsv1.Deployment) []metav1.OwnerReference {
			return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "11111111-2222-3333-4444-555555555555"}}
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, _ := side(t)
			d := n.apply(1)
			_, s := n.complete()
			owners := tt.owners(d)
			n.editSet(s.Name, func(s *appsv1.ReplicaSet) { s.OwnerReferences = owners })
			n.eventually(func(ctx context.Context) error {
				now, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, s.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if !metav1.IsControlledBy(now, d) || len(now.OwnerReferences) != tt.want {
					return fmt.Errorf("owners are %+v, want %d of them, the Deployment as controller", now.OwnerReferences, tt.want)
				}
				return nil
			})
			if got, sets := n.owned(); len(sets) != 1 || ptr.Deref(got.Status.CollisionCount, 0) != 0 {
				t.Errorf("ReplicaSets are %v, the status %+v", names(sets), got.Status)
			}
		})
	}
}

// TestAReplicaSetWithOtherLabelsIsReleased: another ReplicaSet takes its place, and with its old labels it is adopted
// again.
func TestAReplicaSetWithOtherLabelsIsReleased(t *testing.T) {
	n, _ := side(t)
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

func TestOverlappingDeployments(t *testing.T) {
	n, _ := side(t)
	same := func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = map[string]string{"app": "both"}, map[string]string{"app": "both"}
	}
	first := n.applyNamed("first", 1, same)
	second := n.applyNamed("second", 2, same, image("v2"))
	n.completeNamed("first")
	n.completeNamed("second")
	n.editNamed("first", replicas(3))
	n.completeNamed("first")
	_, s := n.completeNamed("second")
	if *s.Spec.Replicas != 2 {
		t.Errorf("the other was scaled to %d", *s.Spec.Replicas)
	}
	for _, d := range []*appsv1.Deployment{first, second} {
		if sets, err := n.sets(t.Context(), d); err != nil || len(sets) != 1 {
			t.Errorf("%s has ReplicaSets %v, %v", d.Name, names(sets), err)
		}
	}
}
