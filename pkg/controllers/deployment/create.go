package deployment

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newReplicaSet makes a ReplicaSet for the template of a Deployment. It shares no memory with the Deployment, so marshalling it changes no
// quantity of the cached template, of which the hash is made. Two that are made for one template and collisionCount have the same name.
func newReplicaSet(d *appsv1.Deployment, old []replicaSet, size int) *appsv1.ReplicaSet {
	template := *d.Spec.Template.DeepCopy()
	hash := templateHash(template, d.Status.CollisionCount)

	template.Labels = withLabel(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	selector.MatchLabels = withLabel(selector.MatchLabels, hash)
	annotations := nextAnnotations(d, nil, old)
	maps.Copy(annotations, sizeAnnotations(boundsOf(d)))
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            replicaSetName(d.Name, hash),
			Namespace:       d.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, ownerKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32(size)),
			MinReadySeconds: d.Spec.MinReadySeconds,
			Selector:        selector,
			Template:        template,
		},
	}
}

// withLabel returns a copy with the label pod-template-hash.
func withLabel(labels map[string]string, hash string) map[string]string {
	out := make(map[string]string, len(labels)+1)
	maps.Copy(out, labels)
	out[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return out
}
