package deployment

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/enqueue"
)

func (c *Controller) register() error {
	err := c.deps.Deployments.Handle(caches.Handler[*appsv1.Deployment]{
		Add:    func(d *appsv1.Deployment) { c.enqueue(d) },
		Update: func(_, d *appsv1.Deployment) { c.enqueue(d) },
		Delete: func(d *appsv1.Deployment) { c.enqueue(d) },
	})
	if err != nil {
		return fmt.Errorf("watch Deployments: %w", err)
	}
	err = c.deps.ReplicaSets.Handle(caches.Handler[*appsv1.ReplicaSet]{Add: c.wake.Added, Update: c.wake.Updated, Delete: c.wake.Deleted})
	if err != nil {
		return fmt.Errorf("watch ReplicaSets: %w", err)
	}
	err = c.deps.Pods.Handle(caches.Handler[*caches.Pod]{Update: c.podUpdated, Delete: c.podDeleted})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if c.deps.Namespaces == nil {
		return nil
	}
	err = c.deps.Namespaces.Handle(c.wake.Namespaces())
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	return nil
}

func (c *Controller) enqueue(d *appsv1.Deployment) { c.loop.Add(cache.MetaObjectToName(d)) }

// wakes is who is woken by what happens to ReplicaSets and namespaces.
func (c *Controller) wakes() *enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet] {
	return &enqueue.Owners[*appsv1.Deployment, *appsv1.ReplicaSet]{
		Kind: kind, InTerm: &c.inTerm, Get: c.deps.Deployments.Get, In: c.deps.Deployments.InNamespace,
		Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		Wake:     c.enqueue,
		Several: func(rs *appsv1.ReplicaSet, deployments []*appsv1.Deployment) {
			if log := c.log.Load(); log != nil {
				log.V(4).Info("More than one Deployment selects the ReplicaSet", "controller", Name, "replicaSet", klog.KObj(rs), "deployments", klog.KObjSlice(deployments))
			}
		},
	}
}

// podUpdated and podDeleted wake a Deployment that may wait for its old pods to be gone: no event of their ReplicaSet needs to follow.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	if c.inTerm.Load() && (!old.IsFinished() && pod.IsFinished() || old.ControllerUID() != pod.ControllerUID()) {
		c.wakeRecreated(old)
	}
}

func (c *Controller) podDeleted(pod *caches.Pod) {
	if c.inTerm.Load() {
		c.wakeRecreated(pod)
	}
}

// wakeRecreated queues the Deployment of a pod if its strategy is Recreate.
func (c *Controller) wakeRecreated(pod *caches.Pod) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return
	}
	rs, ok := c.deps.ReplicaSets.Get(cache.NewObjectName(pod.Namespace, ref.Name))
	if !ok || rs.UID != ref.UID {
		return
	}
	if d, ok := c.wake.Of(rs); ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		c.enqueue(d)
	}
}
