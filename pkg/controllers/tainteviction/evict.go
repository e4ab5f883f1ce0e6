package tainteviction

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/podkey"
	"minikcm/pkg/controllers/internal/podstatus"
	"minikcm/pkg/outcome"
)

// Texts of upstream, kube-controller-manager v1.37, except the last.
const (
	eventReason      = "TaintManagerEviction"
	markReason       = "DeletionByTaintManager"
	markMessage      = "Taint manager: deleting due to NoExecute taint"
	calledOffMessage = "Taint manager: deletion called off"
)

// errGone is a pod that went between being read and being marked.
var errGone = errors.New("the pod has gone since it was read")

// marked reports whether the pod carries our mark of an eviction that was begun.
func marked(pod *caches.Pod) bool {
	return pod.Disruption.Status == corev1.ConditionTrue && pod.Disruption.Reason == markReason && !pod.IsFinished()
}

// evict marks and deletes a pod if the API server confirms that the pod must leave. The pod is read after its node, and only if the
// live node evicts the cached pod: a node that has recovered saves the reads of its pods.
func (c *Controller) evict(ctx context.Context, key podkey.Key, pod *caches.Pod, seen time.Time) (controller.Result, error) {
	node, err := c.term.live.Get(ctx, pod.NodeName, seen)
	if err != nil {
		return controller.Result{}, err
	}
	now := c.clock.Now()
	d := c.judge(node, pod, seen, now)
	if d.verdict == leaves {
		live, err := c.livePod(ctx, key)
		if err != nil {
			return controller.Result{}, err
		}
		if live == nil || live.DeletionTimestamp != nil {
			c.gone(key)
			return controller.Result{}, nil
		}
		pod, now = c.pods.Trim(live), c.clock.Now()
		if d = c.judge(node, pod, seen, now); d.verdict == leaves {
			c.ledger.expect(key.UID, d.due)
			return controller.Result{}, c.remove(ctx, key, live, d.due)
		}
	}
	result, err := c.keep(ctx, key, pod, d, now)
	return controller.Result{RequeueAfter: controller.MinPositive(result.RequeueAfter, liveRecheck)}, err
}

// livePod reads a pod from the API server; nil if it is gone, even if another has its name.
func (c *Controller) livePod(ctx context.Context, key podkey.Key) (*corev1.Pod, error) {
	pod, err := c.client.CoreV1().Pods(key.Name.Namespace).Get(ctx, key.Name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != key.UID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get pod %s: %w", key.Name, err)
	}
	return pod, nil
}

// remove marks and deletes a pod whose deadline was due.
func (c *Controller) remove(ctx context.Context, key podkey.Key, pod *corev1.Pod, due time.Time) error {
	begun := c.clock.Now()
	if !finished(pod) {
		if err := c.mark(ctx, pod); err != nil {
			return err
		}
	}
	if c.ledger.start(key.UID) {
		c.metrics.begun(due, begun)
		c.recorder.Eventf(reference(key), corev1.EventTypeNormal, eventReason, "Marking for deletion Pod %s", key.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // a delete put off for longer is decided again
	defer cancel()
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	switch {
	case err == nil:
		c.metrics.deleted(due, c.clock.Now())
		klog.FromContext(ctx).V(2).Info("Evicted a pod", "pod", klog.KObj(pod), "node", klog.KRef("", pod.Spec.NodeName), "due", due)
	case apierrors.IsNotFound(err):
	default: // a conflict too: if another pod has the name, the next try will tell
		return fmt.Errorf("delete pod %s: %w", key.Name, err)
	}
	c.ledger.done(key.UID)
	return nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// mark says in the pod's status who is about to end it.
func (c *Controller) mark(ctx context.Context, pod *corev1.Pod) error {
	old := podstatus.Find(pod.Status.Conditions, corev1.DisruptionTarget)
	if old != nil && old.Status == corev1.ConditionTrue && old.Reason == markReason && old.Message == markMessage {
		return nil
	}
	return c.patch(ctx, pod, podstatus.Change{
		UID: pod.UID,
		Condition: podstatus.Transition(old, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason: markReason, Message: markMessage,
		}, metav1.NewTime(c.clock.Now())),
	})
}

// unmark takes our mark back from a pod that stays. The resource version keeps it from undoing a mark that somebody else sets.
func (c *Controller) unmark(ctx context.Context, key podkey.Key) error {
	pod, err := c.livePod(ctx, key)
	if err != nil || pod == nil || pod.DeletionTimestamp != nil || !marked(c.pods.Trim(pod)) {
		return err
	}
	return c.patch(ctx, pod, podstatus.Change{
		UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Condition: podstatus.Transition(podstatus.Find(pod.Status.Conditions, corev1.DisruptionTarget), corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
			Reason: markReason, Message: calledOffMessage,
		}, metav1.NewTime(c.clock.Now())),
	})
}

func (c *Controller) patch(ctx context.Context, pod *corev1.Pod, change podstatus.Change) error {
	patch, err := change.Patch()
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return errGone
	case err != nil: // a conflict too: it may be a webhook's, and last
		return fmt.Errorf("patch status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (c *Controller) recordCancelled(key podkey.Key) {
	c.recorder.Eventf(reference(key), corev1.EventTypeNormal, eventReason, "Cancelling deletion of Pod %s", key.Name)
}

// reference attaches an event to a pod that may be gone already.
func reference(key podkey.Key) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: key.Name.Namespace, Name: key.Name.Name, UID: key.UID,
	}
}
