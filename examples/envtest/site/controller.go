// Package site is a small operator: for each Site it keeps a ConfigMap with the page and a Deployment of pods that
// serve it, both owned by the Site, and counts the ready pods in its status.
package site

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Controller reconciles Sites.
type Controller struct {
	client.Client
}

// SetUp adds the controller to a manager.
func (c *Controller) SetUp(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&Site{}).Owns(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).Complete(c)
}

// Reconcile implements reconcile.Reconciler.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site Site
	if err := c.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector's work
	}
	own := metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}

	page := &corev1.ConfigMap{ObjectMeta: own}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, page, func() error {
		page.Data = map[string]string{"index.html": site.Spec.Page}
		return controllerutil.SetControllerReference(&site, page, c.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}

	pods := &appsv1.Deployment{ObjectMeta: own}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, pods, func() error {
		labels := map[string]string{"site": site.Name}
		pods.Spec.Replicas = &site.Spec.Replicas
		pods.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		pods.Spec.Template.Labels = labels
		if len(pods.Spec.Template.Spec.Containers) == 0 {
			pods.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "example.com/web:1"}}
		}
		return controllerutil.SetControllerReference(&site, pods, c.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}

	if site.Status.Ready == pods.Status.ReadyReplicas {
		return ctrl.Result{}, nil
	}
	before := site.DeepCopyObject().(*Site)
	site.Status.Ready = pods.Status.ReadyReplicas
	return ctrl.Result{}, c.Status().Patch(ctx, &site, client.MergeFrom(before))
}
