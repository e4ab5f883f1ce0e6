package podgc

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/podkey"
	"minikcm/pkg/controllers/internal/podstatus"
	"minikcm/pkg/outcome"
)

// Texts of upstream, kube-controller-manager v1.37.
const (
	markReason  = "DeletionByPodGC"
	markMessage = "PodGC: node no longer exists"
)

// reconcileNode waits out the quarantine of a missing node, and hands on the pods of a node that is gone or out of service.
func (c *Controller) reconcileNode(_ context.Context, name string) (controller.Result, error) {
	c.term.live.Forget(name) // an answer from before this change must not be used
	node := c.cachedNode(name)
	if node.exists || c.pods.CountOnNode(name) == 0 {
		c.term.absence.end(name)
	} else {
		now := c.clock.Now()
		if left := remaining(c.term.absence.note(name, now), now, c.cfg.Quarantine); left > 0 {
			return controller.Result{RequeueAfter: left}, nil
		}
	}
	if node.exists && !node.outOfService {
		return controller.Result{}, nil
	}
	for _, pod := range c.pods.OnNode(name) {
		if why(pod, node, false, false) != none {
			c.podLoop.Add(podkey.Of(pod))
		}
	}
	return controller.Result{}, nil
}

// reconcileCount chooses which finished pods are too many.
func (c *Controller) reconcileCount(context.Context, string) (controller.Result, error) {
	again := controller.Result{RequeueAfter: c.cfg.Period}
	if c.finished.Load() <= int64(c.cfg.TerminatedPodThreshold) {
		c.term.surplus.Store(nil)
		return again, nil
	}
	excess := surplus(c.pods.List(), c.cfg.TerminatedPodThreshold)
	chosen := make(map[types.UID]bool, len(excess))
	for _, pod := range excess {
		chosen[pod.UID] = true
	}
	c.term.surplus.Store(&chosen)
	for _, pod := range excess {
		c.podLoop.Add(podkey.Of(pod))
	}
	return again, nil
}

// reconcilePod collects one pod if there is cause to.
func (c *Controller) reconcilePod(ctx context.Context, key podkey.Key) (controller.Result, error) {
	pod, ok := c.pods.Get(key.Name)
	if !ok || pod.UID != key.UID || workOn(pod) == (work{}) {
		return controller.Result{}, nil
	}
	because := why(pod, c.cachedNode(pod.NodeName), c.quarantined(pod.NodeName), c.isSurplus(key.UID))
	if because == none {
		return controller.Result{}, nil
	}
	collected, err := c.collect(ctx, key, pod, because)
	switch {
	case apierrors.IsNotFound(err): // gone since it was read
		return controller.Result{RequeueAfter: c.cfg.Quarantine}, nil
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			c.metrics.errors.WithLabelValues(key.Name.Namespace, string(because)).Inc()
		}
		return controller.Result{}, err
	case !collected:
		return controller.Result{RequeueAfter: c.cfg.Quarantine}, nil // the caches should know by then
	}
	return controller.Result{}, nil
}

// collect reads the pod and its node from the API server and does what is left to do about the pod. It reports false if there turns
// out to be no cause. A finished pod of the surplus is not read: the pod stays finished, and the delete names its UID.
func (c *Controller) collect(ctx context.Context, key podkey.Key, cached *caches.Pod, because cause) (bool, error) {
	if because == terminated && cached.IsFinished() {
		return true, c.finish(ctx, cached, workOn(cached), because)
	}
	pod, err := c.livePod(ctx, key)
	if pod == nil || err != nil {
		return true, err
	}
	if pod.NodeName != cached.NodeName {
		return false, nil
	}
	because = why(pod, nodeState{exists: true}, false, c.isSurplus(key.UID))
	if because == none {
		if because, err = c.whyByNode(ctx, pod); err != nil || because == none {
			return false, err
		}
	}
	return true, c.finish(ctx, pod, workOn(pod), because)
}

// livePod reads a pod from the API server; nil if it is gone, even if another has its name. It lists, because upstream's service
// account for this controller may not get pods; the API server looks up a list by name as it does a get.
func (c *Controller) livePod(ctx context.Context, key podkey.Key) (*caches.Pod, error) {
	byName := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name.Name).String()}
	found, _, err := c.pods.Read(ctx, c.client, key.Name.Namespace, byName)
	if err != nil {
		return nil, err
	}
	for _, pod := range found {
		if pod.UID == key.UID {
			return pod, nil
		}
	}
	return nil, nil
}

// whyByNode looks for a cause that only the node can give, and asks the API server for that.
func (c *Controller) whyByNode(ctx context.Context, pod *caches.Pod) (cause, error) {
	if pod.NodeName == "" {
		return none, nil
	}
	node, err := c.term.live.Get(ctx, pod.NodeName, time.Time{})
	if err != nil {
		return none, err
	}
	return why(pod, node, c.quarantined(pod.NodeName), false), nil
}

// finish marks and deletes a pod.
func (c *Controller) finish(ctx context.Context, pod *caches.Pod, todo work, because cause) error {
	if todo.fail {
		if err := c.fail(ctx, pod, because); err != nil {
			return err
		}
	}
	if !todo.remove {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // a delete put off for longer is decided again
	defer cancel()
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.metrics.deletes.WithLabelValues(pod.Namespace, string(because)).Inc()
	klog.FromContext(ctx).V(2).Info("Deleted a pod without grace", "pod", klog.KObj(pod), "reason", because, "node", klog.KRef("", pod.NodeName))
	return nil
}

// fail says in the status of a pod that it has failed, because nobody else will.
func (c *Controller) fail(ctx context.Context, pod *caches.Pod, because cause) error {
	change := podstatus.Change{UID: pod.UID, Phase: corev1.PodFailed, ObservedGeneration: pod.Generation}
	if because == orphaned {
		change.Condition = podstatus.Transition(disruption(pod), corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason: markReason, Message: markMessage,
		}, metav1.NewTime(c.clock.Now()))
	}
	patch, err := change.Patch()
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// disruption is the pod's condition DisruptionTarget, as far as it is cached; nil if it has none.
func disruption(pod *caches.Pod) *corev1.PodCondition {
	if pod.Disruption.Status == "" {
		return nil
	}
	return &corev1.PodCondition{Type: corev1.DisruptionTarget, Status: pod.Disruption.Status, LastTransitionTime: pod.Disruption.Since}
}

// cachedNode is a node's state as the cache has it.
func (c *Controller) cachedNode(name string) nodeState {
	if node, ok := c.nodes.Get(cache.ObjectName{Name: name}); ok {
		return stateOf(node)
	}
	return nodeState{}
}

// look reads a node's state from the API server.
func (c *Controller) look(ctx context.Context, name string) (nodeState, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nodeState{}, nil
	case err != nil:
		return nodeState{}, fmt.Errorf("get node %s: %w", name, err)
	}
	return stateOf(node), nil
}

// quarantined reports whether a missing node may still turn up.
func (c *Controller) quarantined(name string) bool {
	since, missing := c.term.absence.of(name)
	return !missing || remaining(since, c.clock.Now(), c.cfg.Quarantine) > 0
}

func (c *Controller) isSurplus(pod types.UID) bool {
	chosen := c.term.surplus.Load()
	return chosen != nil && (*chosen)[pod]
}
