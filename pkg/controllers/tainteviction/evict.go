package tainteviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/podkey"
	"minikcm/pkg/controllers/internal/podstatus"
	"minikcm/pkg/outcome"
)

// Texts of kube-controller-manager v1.37.
const (
	eventReason = "TaintManagerEviction"
	markReason  = "DeletionByTaintManager"
	markMessage = "Taint manager: deleting due to NoExecute taint"
)

// evict marks and deletes a pod if the live node and the live pod confirm that the pod must leave. The pod is
// read only if the live node evicts the cached pod, so a recovered node costs no reads of pods.
func (c *Controller) evict(ctx context.Context, key podkey.Key, pod *caches.Pod, e entry) (controller.Result, error) {
	taints, err := c.term.live.Get(ctx, pod.NodeName, e.seen)
	if err != nil {
		return controller.Result{}, err
	}
	now := c.Clock.Now()
	d := c.decide(taints, pod, e)
	if d.leaves(now) {
		found, err := live.Find(ctx, key.Name.Name, c.Client.CoreV1().Pods(key.Name.Namespace).Get)
		if err != nil {
			return controller.Result{}, err
		}
		if found == nil || found.UID != key.UID || found.DeletionTimestamp != nil {
			c.endEviction(key)
			return controller.Result{}, nil
		}
		pod, now = c.pods.Trim(found), c.Clock.Now()
		if d = c.decide(taints, pod, e); d.leaves(now) {
			c.ledger.setDecision(key.UID, d)
			return controller.Result{}, c.markAndDelete(ctx, key, found, d.due)
		}
	}
	d.countdowns = e.countdowns // the cache may show soon that the countdowns continue
	return controller.Result{RequeueAfter: timing.MinPositive(c.keep(key, d, now), liveRecheck)}, nil
}

// markAndDelete marks and deletes a pod whose deadline was due.
func (c *Controller) markAndDelete(ctx context.Context, key podkey.Key, pod *corev1.Pod, due time.Time) error {
	if phase := pod.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
		if err := c.mark(ctx, pod); err != nil {
			return err
		}
	}
	if c.ledger.setStarted(key.UID) {
		c.recorder.Eventf(podReference(key), corev1.EventTypeNormal, eventReason, "Marking for deletion Pod %s", key.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // a later retry decides again
	defer cancel()
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	switch {
	case err == nil:
		c.metrics.deletions.Inc()
		c.metrics.duration.Observe(c.Clock.Since(due).Seconds())
		klog.FromContext(ctx).V(2).Info("Evicted a pod", "pod", klog.KObj(pod), "node", klog.KRef("", pod.Spec.NodeName), "due", due)
	case outcome.IsNotFound(err, pod.Name):
	default: // includes conflicts: the next attempt reads the pod again
		return fmt.Errorf("delete pod %s: %w", key.Name, err)
	}
	return nil
}

// mark sets the pod condition DisruptionTarget.
func (c *Controller) mark(ctx context.Context, pod *corev1.Pod) error {
	if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == markReason && c.Message == markMessage
	}) {
		return nil
	}
	trimmed := c.pods.Trim(pod)
	target := podstatus.DisruptionTarget(trimmed, markReason, markMessage, c.Clock.Now())
	return podstatus.Send(ctx, c.Client, podstatus.NewChange(trimmed, corev1ac.PodStatus().WithConditions(target)))
}

// podReference returns the event target, which may be a deleted pod.
func podReference(key podkey.Key) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: key.Name.Namespace, Name: key.Name.Name, UID: key.UID,
	}
}
