package deployment

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controllers/internal/ownership"
)

const kind = "Deployment"

var ownerKind = appsv1.SchemeGroupVersion.WithKind(kind)

// claim adopts and releases ReplicaSets, and returns those that the Deployment controls. An error ends the sync,
// because wrong sizes would follow.
func (c *Controller) claim(ctx context.Context, t syncState) (mine []*appsv1.ReplicaSet, err error) {
	var adopt, release []*appsv1.ReplicaSet
	for _, rs := range t.sets {
		switch relation := ownership.RelationOf(t.d, kind, t.selector, rs); {
		case relation == ownership.Owned:
			mine = append(mine, rs)
		case t.d.DeletionTimestamp != nil:
		case relation == ownership.Adoptable && rs.DeletionTimestamp == nil:
			adopt = append(adopt, rs)
		case relation == ownership.Releasable:
			release = append(release, rs)
		}
	}
	oneByOne := func(n int, do func(int)) (int, error) {
		for i := range n {
			do(i)
		}
		return n, nil
	}
	adopted, err := c.owners.AdoptAndRelease(ctx, t.d, adopt, release, &t.memory.ownership, &t.expectations.barrier, oneByOne)
	return append(mine, adopted...), err
}

func (c *Controller) patchOwner(ctx context.Context, rs *appsv1.ReplicaSet, body []byte) (*appsv1.ReplicaSet, error) {
	return c.Client.AppsV1().ReplicaSets(rs.Namespace).Patch(ctx, rs.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
}

func controls(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	return ownership.IsController(d, kind, rs)
}
