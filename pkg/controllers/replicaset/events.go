package replicaset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/enqueue"
)

func (c *Controller) enqueue(rs *appsv1.ReplicaSet) { c.loop.Add(cache.MetaObjectToName(rs)) }

// wakes is who is woken by what happens to pods and namespaces.
func (c *Controller) wakes() *enqueue.Owners[*appsv1.ReplicaSet, *caches.Pod] {
	return &enqueue.Owners[*appsv1.ReplicaSet, *caches.Pod]{
		Kind: kind, InTerm: &c.inTerm, Get: c.deps.ReplicaSets.Get, In: c.deps.ReplicaSets.InNamespace,
		Selector: func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
		Wake:     c.enqueue,
		Several: func(pod *caches.Pod, sets []*appsv1.ReplicaSet) {
			if log := c.log.Load(); log != nil {
				// Not through utilruntime, which may sleep: the watch stream waits for us.
				log.Error(nil, "More than one ReplicaSet selects the pod", "controller", Name, "pod", klog.KObj(pod), "replicaSets", klog.KObjSlice(sets))
			}
		},
	}
}

// gatherPods is the delay of a sync after an update of a pod, if the ReplicaSet has more than fewPods pods: pods often become ready together.
const gatherPods = 20 * time.Millisecond

// podUpdated wakes the ReplicaSet of a pod that has become ready a second time, when the pod may be available.
func (c *Controller) podUpdated(old, pod *caches.Pod) {
	if !c.inTerm.Load() {
		return
	}
	rs, ok := c.wake.Of(pod)
	if ok && pod.IsActive() && old.ControllerUID() == pod.ControllerUID() && (task{rs: rs}).want() > fewPods {
		c.loop.AddAfter(cache.MetaObjectToName(rs), gatherPods)
	} else {
		c.wake.Updated(old, pod)
	}
	if ok && rs.Spec.MinReadySeconds > 0 && !isReady(old) && isReady(pod) && pod.DeletionTimestamp == nil {
		c.loop.AddAfter(cache.MetaObjectToName(rs), time.Duration(rs.Spec.MinReadySeconds)*time.Second)
	}
}

func isReady(pod *caches.Pod) bool { return pod.Ready.Status == corev1.ConditionTrue }
