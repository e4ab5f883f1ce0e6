// Package foo keeps a Deployment for every Foo. It is a complete small controller, a template for others.
package foo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// Controller keeps a Deployment for every Foo.
type Controller struct {
	foos        caches.Store[*Foo]
	deployments caches.Store[*appsv1.Deployment]
	client      kubernetes.Interface
	status      rest.Interface
	recorder    record.EventRecorder
	loop        *controller.Loop[cache.ObjectName]
}

// addHandlers maps events to keys, in constant time.
func (c *Controller) addHandlers() error {
	foo := func(f *Foo) { c.loop.Add(cache.MetaObjectToName(f)) }
	owner := func(d *appsv1.Deployment) {
		if ref := metav1.GetControllerOf(d); ref != nil && ref.Kind == "Foo" {
			c.loop.Add(cache.NewObjectName(d.Namespace, ref.Name))
		}
	}
	return errors.Join(
		c.foos.Handle(caches.Handler[*Foo]{Add: foo, Update: func(_, f *Foo) { foo(f) }}),
		c.deployments.Handle(caches.Handler[*appsv1.Deployment]{Add: owner, Update: func(_, d *appsv1.Deployment) { owner(d) }, Delete: owner}),
	)
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	c.loop.Run(ctx, c.foos.Names)
	return nil
}

// Healthy implements controller.Controller.
func (c *Controller) Healthy() error { return c.loop.Healthy() }

// reconcile brings one Foo a step closer to its spec.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {
	// 1. Observe: caches only.
	foo, ok := c.foos.Get(key)
	if !ok || foo.DeletionTimestamp != nil {
		return controller.Result{}, nil // the garbage collector deletes its Deployment
	}
	deployment, ok := c.deployments.Get(cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName))
	if !ok {
		deployment = nil
	}
	// 2. Decide.
	p, result := plan(foo, deployment), controller.Result{}
	// 3. Act. If the caches lag, the API server rejects the write: the name exists, or the version has changed. The
	// key is then retried.
	switch p.step {
	case create:
		if _, err := c.client.AppsV1().Deployments(foo.Namespace).Create(ctx, p.deployment, metav1.CreateOptions{}); err != nil {
			return controller.Result{}, fmt.Errorf("create Deployment %s: %w", p.deployment.Name, err)
		}
		c.recorder.Eventf(reference(foo), corev1.EventTypeNormal, "Created", "Created Deployment %s", p.deployment.Name)
	case update:
		_, err := c.client.AppsV1().Deployments(foo.Namespace).Update(ctx, p.deployment, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return controller.Result{}, nil // the event of the other change brings the key back
		}
		if err != nil {
			return controller.Result{}, fmt.Errorf("update Deployment %s: %w", p.deployment.Name, err)
		}
	case taken:
		c.recorder.Eventf(reference(foo), corev1.EventTypeWarning, "NameTaken", "Deployment %s is not ours", foo.Spec.DeploymentName)
		result.RequeueAfter = 5 * time.Second // events of that Deployment do not add the key
	}
	return result, c.writeStatus(ctx, foo, p.status)
}

// reference names foo in events. The scheme of client-go, which the recorder uses, has no type Foo.
func reference(foo *Foo) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: Foos.GroupVersion().String(), Kind: "Foo", Namespace: foo.Namespace, Name: foo.Name, UID: foo.UID}
}

func (c *Controller) writeStatus(ctx context.Context, foo *Foo, status Status) error {
	if foo.Status == status {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	err = c.status.Patch(types.MergePatchType).Namespace(foo.Namespace).Resource(Foos.Resource).Name(foo.Name).SubResource("status").Body(patch).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
