package replicaset

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/selection"
)

func (c *Controller) enqueue(rs *appsv1.ReplicaSet) { c.loop.Add(cache.MetaObjectToName(rs)) }

func (c *Controller) podAdded(pod *caches.Pod) {
	if !c.inTerm.Load() {
		return
	}
	switch ref := metav1.GetControllerOfNoCopy(pod); {
	case ref != nil:
		c.wakeOwner(pod.Namespace, ref)
	case pod.DeletionTimestamp == nil:
		c.wakeAdopters(pod)
	}
}

// podUpdated wakes whom the pod concerns now and whom it concerned before.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	if !c.inTerm.Load() || old.ResourceVersion == pod.ResourceVersion { // a resync
		return
	}
	oldRef, ref := metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(pod)
	if oldRef != nil && (ref == nil || ref.UID != oldRef.UID) {
		c.wakeOwner(old.Namespace, oldRef)
	}
	switch {
	case ref != nil:
		rs := c.wakeOwner(pod.Namespace, ref)
		if rs != nil && rs.Spec.MinReadySeconds > 0 && pod.DeletionTimestamp == nil && !isReady(old) && isReady(pod) {
			c.loop.AddAfter(cache.MetaObjectToName(rs), time.Duration(rs.Spec.MinReadySeconds)*time.Second)
		}
	case pod.DeletionTimestamp == nil && (oldRef != nil || !maps.Equal(old.Labels, pod.Labels)):
		c.wakeAdopters(pod)
	}
}

func (c *Controller) podDeleted(pod *caches.Pod) {
	if !c.inTerm.Load() {
		return
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		c.wakeOwner(pod.Namespace, ref)
	}
}

// wakeOwner queues the ReplicaSet that a controller reference points to and returns it; nil if there is none.
func (c *Controller) wakeOwner(namespace string, ref *metav1.OwnerReference) *appsv1.ReplicaSet {
	if ref.Kind != kind {
		return nil
	}
	rs, ok := c.deps.ReplicaSets.Get(cache.NewObjectName(namespace, ref.Name))
	if !ok || rs.UID != ref.UID {
		return nil
	}
	c.enqueue(rs)
	return rs
}

// wakeAdopters queues every ReplicaSet that could adopt the pod.
func (c *Controller) wakeAdopters(pod *caches.Pod) {
	adopters := slices.DeleteFunc(c.deps.ReplicaSets.InNamespace(pod.Namespace), func(rs *appsv1.ReplicaSet) bool {
		return !couldAdopt(rs, pod.Labels)
	})
	for _, rs := range adopters {
		c.enqueue(rs)
	}
	if log := c.log.Load(); len(adopters) > 1 && log != nil {
		// Not through utilruntime, which may sleep: the watch stream waits for us.
		log.Error(nil, "More than one ReplicaSet selects the pod", "controller", Name,
			"pod", klog.KObj(pod), "replicaSets", klog.KObjSlice(adopters))
	}
}

// couldAdopt reports whether the ReplicaSet selects pods with these labels. A selector that is empty or invalid selects none.
func couldAdopt(rs *appsv1.ReplicaSet, podLabels map[string]string) bool {
	if len(podLabels) == 0 {
		return false
	}
	selector, err := selection.Of(rs.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(podLabels))
}

// namespaceAdded wakes ReplicaSets that may have been held back by an older namespace of that name.
func (c *Controller) namespaceAdded(ns *corev1.Namespace) {
	if !c.inTerm.Load() {
		return
	}
	for _, rs := range c.deps.ReplicaSets.InNamespace(ns.Name) {
		c.enqueue(rs)
	}
}

func (c *Controller) namespaceUpdated(old, ns *corev1.Namespace) {
	if old.UID != ns.UID {
		c.namespaceAdded(ns)
	}
}

func isReady(pod *caches.Pod) bool { return pod.Ready.Status == corev1.ConditionTrue }
