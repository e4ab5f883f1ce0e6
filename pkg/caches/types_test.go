package caches

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrimReplicaSet(t *testing.T) {
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/web:1"}}},
	}
	for _, tt := range []struct {
		name     string
		replicas *int32
		want     corev1.PodTemplateSpec
	}{
		{"none", new(int32(0)), corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
		{"one", new(int32(1)), template},
		{"not said, which means one", nil, template},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rs := &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{Name: "rs", Annotations: map[string]string{"kept": "yes"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
				Spec:       appsv1.ReplicaSetSpec{Replicas: tt.replicas, Template: *template.DeepCopy()},
				Status:     appsv1.ReplicaSetStatus{Replicas: 3},
			}
			kept := rs
			trimReplicaSet(kept, false)
			if !equality.Semantic.DeepEqual(kept.Spec.Template, tt.want) {
				t.Errorf("template %+v, want %+v", kept.Spec.Template, tt.want)
			}
			if kept.ManagedFields != nil || kept.Annotations["kept"] != "yes" || kept.Status.Replicas != 3 {
				t.Errorf("the rest is %+v, want it as it was but for managed fields", kept)
			}
		})
	}
}
