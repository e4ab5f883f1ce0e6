package deployment

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/selection"
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
	err = c.deps.ReplicaSets.Handle(caches.Handler[*appsv1.ReplicaSet]{Add: c.setAdded, Update: c.setUpdated, Delete: c.setDeleted})
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
	err = c.deps.Namespaces.Handle(caches.Handler[*corev1.Namespace]{Add: c.namespaceAdded, Update: c.namespaceUpdated})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	return nil
}

func (c *Controller) enqueue(d *appsv1.Deployment) { c.loop.Add(cache.MetaObjectToName(d)) }

func (c *Controller) setAdded(rs *appsv1.ReplicaSet) {
	if !c.inTerm.Load() {
		return
	}
	switch ref := metav1.GetControllerOfNoCopy(rs); {
	case ref != nil:
		c.wakeOwner(rs.Namespace, ref)
	case rs.DeletionTimestamp == nil:
		c.wakeAdopters(rs)
	}
}

// setUpdated wakes whom the ReplicaSet concerns now and whom it concerned before.
func (c *Controller) setUpdated(old, rs *appsv1.ReplicaSet) {
	if !c.inTerm.Load() || old.ResourceVersion == rs.ResourceVersion { // a resync
		return
	}
	oldRef, ref := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(rs)
	if oldRef != nil && (ref == nil || ref.UID != oldRef.UID) {
		c.wakeOwner(old.Namespace, oldRef)
	}
	switch {
	case ref != nil:
		c.wakeOwner(rs.Namespace, ref)
	case rs.DeletionTimestamp == nil && (oldRef != nil || !maps.Equal(old.Labels, rs.Labels)):
		c.wakeAdopters(rs)
	}
}

func (c *Controller) setDeleted(rs *appsv1.ReplicaSet) {
	if !c.inTerm.Load() {
		return
	}
	if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
		c.wakeOwner(rs.Namespace, ref)
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
	if d := c.owner(rs.Namespace, metav1.GetControllerOfNoCopy(rs)); d != nil && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		c.enqueue(d)
	}
}

// owner returns the Deployment that a controller reference points to; nil if there is none.
func (c *Controller) owner(namespace string, ref *metav1.OwnerReference) *appsv1.Deployment {
	if ref == nil || ref.Kind != kind {
		return nil
	}
	d, ok := c.deps.Deployments.Get(cache.NewObjectName(namespace, ref.Name))
	if !ok || d.UID != ref.UID {
		return nil
	}
	return d
}

func (c *Controller) wakeOwner(namespace string, ref *metav1.OwnerReference) {
	if d := c.owner(namespace, ref); d != nil {
		c.enqueue(d)
	}
}

// wakeAdopters queues every Deployment that could adopt the ReplicaSet.
func (c *Controller) wakeAdopters(rs *appsv1.ReplicaSet) {
	adopters := slices.DeleteFunc(c.deps.Deployments.InNamespace(rs.Namespace), func(d *appsv1.Deployment) bool {
		return !couldAdopt(d, rs.Labels)
	})
	for _, d := range adopters {
		c.enqueue(d)
	}
	if log := c.log.Load(); len(adopters) > 1 && log != nil {
		log.V(4).Info("More than one Deployment selects the ReplicaSet", "controller", Name,
			"replicaSet", klog.KObj(rs), "deployments", klog.KObjSlice(adopters))
	}
}

// couldAdopt reports whether the Deployment selects ReplicaSets with these labels. A selector that is empty or invalid selects none.
func couldAdopt(d *appsv1.Deployment, setLabels map[string]string) bool {
	if len(setLabels) == 0 {
		return false
	}
	selector, err := selection.Of(d.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(setLabels))
}

// namespaceAdded wakes Deployments that may have been held back by an older namespace of that name.
func (c *Controller) namespaceAdded(ns *corev1.Namespace) {
	if !c.inTerm.Load() {
		return
	}
	for _, d := range c.deps.Deployments.InNamespace(ns.Name) {
		c.enqueue(d)
	}
}

func (c *Controller) namespaceUpdated(old, ns *corev1.Namespace) {
	if old.UID != ns.UID {
		c.namespaceAdded(ns)
	}
}
