package deployment

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// claims says what the ReplicaSets of a namespace are to a Deployment.
type claims struct {
	mine    []*appsv1.ReplicaSet // ours and selected, those being deleted too
	adopt   []*appsv1.ReplicaSet // nobody's and selected
	release []*appsv1.ReplicaSet // ours, no longer selected
}

// claim sorts ReplicaSets. Those of others are nothing to the Deployment. One that is being deleted neither adopts nor releases, nor is one adopted.
func claim(d *appsv1.Deployment, selector labels.Selector, sets []*appsv1.ReplicaSet) claims {
	var c claims
	for _, rs := range sets {
		orphan := metav1.GetControllerOfNoCopy(rs) == nil
		selected := selector.Matches(labels.Set(rs.Labels))
		switch {
		case rs.Namespace != d.Namespace || !orphan && !controls(d, rs):
		case orphan:
			if selected && d.DeletionTimestamp == nil && rs.DeletionTimestamp == nil {
				c.adopt = append(c.adopt, rs)
			}
		case selected:
			c.mine = append(c.mine, rs)
		case d.DeletionTimestamp == nil:
			c.release = append(c.release, rs)
		}
	}
	return c
}

// controls reports whether d is the controller of a ReplicaSet. A reference with the right UID and another name or kind is an error of somebody's:
// the garbage collector takes its ReplicaSet for an orphan of a deleted owner.
func controls(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	ref := metav1.GetControllerOfNoCopy(rs)
	return ref != nil && ref.UID == d.UID && ref.Kind == kind && ref.Name == d.Name
}

// controllerUID is the UID of the owner that controls a ReplicaSet, empty if none does.
func controllerUID(rs *appsv1.ReplicaSet) types.UID {
	if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
		return ref.UID
	}
	return ""
}

// controllerRef is the owner reference of our ReplicaSets.
func controllerRef(d *appsv1.Deployment) *metav1.OwnerReference {
	return metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind(kind))
}
