package deployment

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const kind = "Deployment"

// newSet is the ReplicaSet that the present template is to have, without the pods that it gets only when it is seen to be what it should.
func (p pass) newSet(size int) set {
	if p.facts.suspect {
		size = 0
	}
	return set{rs: newReplicaSet(p.d, p.old, size), current: true}
}

// blockedBy says why no ReplicaSet can be created in this pass; blocked is false if one can.
func (p pass) blockedBy() (why hold, blocked bool) {
	switch {
	case p.facts.nameTaken || p.facts.holdCreate != "":
		return p.facts.holdCreate, true
	case slices.ContainsFunc(p.old, func(s set) bool { return s.spoiled && s.rs.DeletionTimestamp == nil && s.rs.Name == nextName(p.d) }):
		return holdTemplateChanged, true // it has the name, and is deleted first
	}
	return "", false
}

func (p pass) blocked() bool {
	_, blocked := p.blockedBy()
	return blocked
}

// discarded are spoiled ReplicaSets without pods. While none is to be created the last one stays, for people to see what became of it.
func (p pass) discarded() (sets []*appsv1.ReplicaSet) {
	if p.d.Spec.Paused || p.facts.holdCreate == holdTemplateChanged {
		return nil
	}
	for _, s := range p.old {
		if s.spoiled && s.empty() && s.rs.DeletionTimestamp == nil {
			sets = append(sets, s.rs)
		}
	}
	return sets
}

// newReplicaSet makes a ReplicaSet for the template of a Deployment. It shares no memory with the Deployment, so marshalling it changes no
// quantity of the cached template, of which the hash is made. Two that are made for one template and collisionCount have the same name.
func newReplicaSet(d *appsv1.Deployment, old []set, size int) *appsv1.ReplicaSet {
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
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind(kind))},
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
