package deployment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewReplicaSet(t *testing.T) {
	d := newDeployment(4, within(1, 0), annotated("kubernetes.io/change-cause", "v1"))
	d.Labels = map[string]string{"of": "the Deployment alone"}
	d.Spec.MinReadySeconds = 7
	d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
	before := d.DeepCopy()
	got := newReplicaSet(d, []replicaSet{newOld("old", 4, 1, revision("2"))}, 1)

	hash := templateHash(d.Spec.Template, nil)
	labels := map[string]string{"app": "web", "pod-template-hash": hash}
	template := newTemplate("v1")
	template.Labels = labels
	want := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-" + hash, Labels: labels,
			Annotations: map[string]string{"kubernetes.io/change-cause": "v1", revisionAnnotation: "3", desiredReplicasAnnotation: "4", maxReplicasAnnotation: "5"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(1)), MinReadySeconds: 7, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: d.Spec.Selector.MatchExpressions},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ReplicaSet (-want +got):\n%s", diff)
	}
	got.Labels["a"], got.Spec.Template.Labels["a"], got.Spec.Selector.MatchLabels["a"] = "b", "b", "b"
	got.Spec.Template.Spec.Containers[0].Image = "other"
	if diff := cmp.Diff(before, d); diff != "" {
		t.Errorf("the Deployment shares memory with it (-want +got):\n%s", diff)
	}
	if got.Spec.Selector.MatchLabels["a"] != "b" || len(got.Labels) != 3 {
		t.Errorf("labels %v and selector %v share memory", got.Labels, got.Spec.Selector)
	}
}
