package replicaset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// TestASetWithoutReplicasKeepsItsTemplate: the cache holds no template of a ReplicaSet with 0 replicas.
func TestASetWithoutReplicasKeepsItsTemplate(t *testing.T) {
	start(t, defaults())
	n := newNamespace(t)
	rs := n.apply(0)
	if got := n.settled(rs.Name); !equality.Semantic.DeepEqual(got.Spec, rs.Spec) {
		t.Errorf("spec after the status was written is %+v, want %+v", got.Spec, rs.Spec)
	}
	n.scale(rs.Name, 2)
	n.settled(rs.Name)
	n.scale(rs.Name, 0)
	got := n.settled(rs.Name)
	if !equality.Semantic.DeepEqual(got.Spec.Template, rs.Spec.Template) {
		t.Errorf("template is %+v, want %+v", got.Spec.Template, rs.Spec.Template)
	}
	n.edit(rs.Name, func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = new(int32(1)) })
	n.settled(rs.Name)
	pods := n.pods()
	if len(pods) == 0 || pods[len(pods)-1].Spec.Containers[0].Image != rs.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("pods are %+v, want one made from the template", pods)
	}
}
