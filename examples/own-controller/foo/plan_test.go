package foo

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPlan(t *testing.T) {
	foo := &Foo{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Spec: Spec{DeploymentName: "d", Image: "example.com/web:2", Replicas: 3}}
	with := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := newDeployment(foo.DeepCopyObject().(*Foo))
		d.Status.AvailableReplicas = 2
		change(d)
		return d
	}
	for _, tt := range []struct {
		name       string
		deployment *appsv1.Deployment
		step       step
		status     Status
	}{
		{"no Deployment", nil, create, Status{}},
		{"as specified", with(func(*appsv1.Deployment) {}), keep, Status{2}},
		{"other size", with(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) }), update, Status{2}},
		{"other image", with(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/web:1" }), update, Status{2}},
		{"Deployment without owner", with(func(d *appsv1.Deployment) { d.OwnerReferences = nil }), taken, Status{}},
		{"Deployment of an earlier Foo", with(func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "0" }), taken, Status{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := plan(foo, tt.deployment)
			if got.step != tt.step || got.status != tt.status {
				t.Errorf("%s with status %+v, want %s with %+v", got.step, got.status, tt.step, tt.status)
			}
			if got.step != update {
				return
			}
			if spec := got.deployment.Spec; *spec.Replicas != 3 || spec.Template.Spec.Containers[0].Image != "example.com/web:2" {
				t.Errorf("update to %d replicas of %s, want 3 of example.com/web:2", *spec.Replicas, spec.Template.Spec.Containers[0].Image)
			}
		})
	}
}
