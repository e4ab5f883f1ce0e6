package foo

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step is an action for the Deployment of a Foo.
type step string

const (
	create step = "create"
	update step = "update"
	taken  step = "taken" // a Deployment of another owner has the name
	keep   step = "keep"
)

// decision is the result of plan.
type decision struct {
	step       step
	deployment *appsv1.Deployment // to create, or to update to
	status     Status
}

// plan compares a Foo with the Deployment of its name, or nil.
func plan(foo *Foo, deployment *appsv1.Deployment) decision {
	switch {
	case deployment == nil:
		return decision{step: create, deployment: newDeployment(foo)}
	case !metav1.IsControlledBy(deployment, foo):
		return decision{step: taken}
	}
	status := Status{AvailableReplicas: deployment.Status.AvailableReplicas}
	changed := deployment.DeepCopy() // caches are shared
	changed.Spec.Replicas = &foo.Spec.Replicas
	changed.Spec.Template.Spec.Containers[0].Image = foo.Spec.Image // the API server rejects Deployments without a container
	if apiequality.Semantic.DeepEqual(deployment.Spec, changed.Spec) {
		return decision{step: keep, status: status}
	}
	return decision{step: update, deployment: changed, status: status}
}

func newDeployment(foo *Foo) *appsv1.Deployment {
	labels := map[string]string{"foo": foo.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: foo.Namespace, Name: foo.Spec.DeploymentName, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, Foos.GroupVersion().WithKind("Foo"))},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: foo.Spec.Image}}},
			},
		},
	}
}
