package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/podstatus"
	"minikcm/pkg/outcome"
)

type podKey struct {
	cache.ObjectName
	newOnNode bool
}

// enqueueBound queues a Ready or Unknown pod that is new on its node. The kubelet decides about other changes of pods.
// before is nil or the last pod of the same name.
func (c *Controller) enqueueBound(before, pod *caches.Pod) {
	isNew := before == nil || pod.NodeName != before.NodeName || pod.UID != before.UID
	if isNew && needsMark(pod) {
		c.podLoop.Add(podKey{cache.MetaObjectToName(pod), true})
	}
}

// enqueuePodsOf queues the pods of a silent node, once per downtime.
func (c *Controller) enqueuePodsOf(node *corev1.Node) {
	ready := readyCondition(node)
	if !isSilent(ready) {
		return
	}
	since := ready.LastTransitionTime.Unix()
	if before, _ := c.downtimes.Swap(node.Name, since); before == since {
		return
	}
	for _, pod := range c.pods.OnNode(node.Name) {
		c.podLoop.Add(podKey{ObjectName: cache.MetaObjectToName(pod)})
	}
}

// isSilent reports whether a Ready condition shows that the kubelet has stopped to post its status.
func isSilent(ready *corev1.NodeCondition) bool {
	return ready != nil && ready.Status == corev1.ConditionUnknown && ready.Reason != reasonNeverUpdated
}

// reconcilePod sets a pod of a silent node to not Ready.
func (c *Controller) reconcilePod(ctx context.Context, key podKey) (controller.Result, error) {
	pod, ok := c.pods.Get(key.ObjectName)
	if !ok || !needsMark(pod) {
		return controller.Result{}, nil
	}
	node, ok := c.nodes.Get(cache.ObjectName{Name: pod.NodeName})
	now := c.Clock.Now()
	if !ok || !mustMark(pod, readyCondition(node), key.newOnNode, now) {
		return controller.Result{}, nil
	}
	notReady := corev1ac.PodCondition().WithType(corev1.PodReady).WithStatus(corev1.ConditionFalse).WithLastTransitionTime(metav1.NewTime(now))
	change := podstatus.NewChange(pod, corev1ac.PodStatus().WithConditions(notReady)).WithResourceVersion(pod.ResourceVersion)
	err := podstatus.Send(ctx, c.Client, change)
	switch {
	case outcome.IsNotFound(err, pod.Name):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, err
	}
	klog.FromContext(ctx).V(2).Info("Set pod of silent node to not ready", "node", pod.NodeName)
	c.recorder.Event(pod.Reference(), corev1.EventTypeWarning, eventNotReady, "Node is not ready")
	return controller.Result{}, nil
}

// needsMark reports whether a pod has a node and is Ready or Unknown.
func needsMark(pod *caches.Pod) bool {
	return pod.NodeName != "" && pod.Ready.Status != "" && pod.Ready.Status != corev1.ConditionFalse
}

// mustMark reports whether a pod of a node must become not Ready. If the kubelet reports not Ready or has never
// posted, only a new pod must. A pod that became Ready after its node became Unknown shows that the kubelet is
// back. A time in the future shows that the clock of the node runs ahead, and proves nothing.
func mustMark(pod *caches.Pod, ready *corev1.NodeCondition, newOnNode bool, now time.Time) bool {
	if newOnNode {
		return ready != nil && ready.Status != corev1.ConditionTrue
	}
	return isSilent(ready) && (pod.Ready.Since.Before(&ready.LastTransitionTime) || pod.Ready.Since.After(now))
}
