package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSameTemplate(t *testing.T) {
	type edit = func(*corev1.PodTemplateSpec)
	hashed := func(hash string) edit {
		return func(t *corev1.PodTemplateSpec) {
			t.Labels = map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
		}
	}
	for _, tt := range []struct {
		name string
		a, b edit
		want bool
	}{
		{"equal", func(*corev1.PodTemplateSpec) {}, func(*corev1.PodTemplateSpec) {}, true},
		{"only one has a hash", hashed("a"), func(*corev1.PodTemplateSpec) {}, true},
		{"other hashes", hashed("a"), hashed("b"), true},
		{"no labels, and none but the hash", func(t *corev1.PodTemplateSpec) { t.Labels = nil },
			func(t *corev1.PodTemplateSpec) {
				t.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "a"}
			}, true},
		{"another label", hashed("a"), func(t *corev1.PodTemplateSpec) { t.Labels = map[string]string{"app": "web", "more": ""} }, false},
		{"another value", hashed("a"), func(t *corev1.PodTemplateSpec) { t.Labels["app"] = "shop" }, false},
		{"an annotation", hashed("a"), func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{"restartedAt": "now"} }, false},
		{"annotations nil and empty", func(t *corev1.PodTemplateSpec) { t.Annotations = map[string]string{} }, hashed("a"), true},
		{"a quantity written otherwise", func(t *corev1.PodTemplateSpec) {
			t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1000m")}
		}, func(t *corev1.PodTemplateSpec) {
			t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}, true},
	} {
		a, b := newTemplate("v1"), newTemplate("v1")
		tt.a(&a)
		tt.b(&b)
		labels := len(a.Labels)
		if got := sameTemplate(&a, &b); got != tt.want {
			t.Errorf("%s: sameTemplate = %t, want %t", tt.name, got, tt.want)
		}
		if got := sameTemplate(&b, &a); got != tt.want {
			t.Errorf("%s: the other way round: sameTemplate = %t, want %t", tt.name, got, tt.want)
		}
		if len(a.Labels) != labels {
			t.Errorf("%s: labels of a template were changed: %v", tt.name, a.Labels)
		}
	}
}

func TestOldestReplicaSetOfTheTemplateIsNew(t *testing.T) {
	young := newNext("young", 1)
	twin := newOld("twin-b", 1, 5)
	twin.current = true
	first := newOld("twin-a", 1, 5)
	first.current = true
	oldest := newOld("oldest", 1, 9)
	for _, order := range [][]replicaSet{{young, twin, first, oldest}, {oldest, first, twin, young}, {twin, oldest, young, first}} {
		p := newPass(newDeployment(1), order...)
		next, found, old := p.next, p.found, p.old
		if !found || next.rs.Name != "twin-a" {
			t.Errorf("new is %q (%t), want twin-a", next.rs.Name, found)
		}
		if len(old) != 3 || old[0].rs.Name != "oldest" || old[1].rs.Name != "twin-b" || old[2].rs.Name != "young" {
			t.Errorf("old are %v", old)
		}
	}
	if p := newPass(newDeployment(1), oldest); p.found || len(p.old) != 1 {
		t.Errorf("found %t, %d old, want none and 1", p.found, len(p.old))
	}
}
