package podgc

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/live"
	"minikcm/pkg/controllers/internal/podkey"
	"minikcm/pkg/controllers/internal/podstatus"
	"minikcm/pkg/outcome"
)

// Texts of upstream, kube-controller-manager v1.37.
const (
	markReason  = "DeletionByPodGC"
	markMessage = "PodGC: node no longer exists"
)

// reconcileNode waits for the end of the quarantine of a missing node, and queues the pods of a node that is
// gone or out of service.
func (c *Controller) reconcileNode(_ context.Context, name string) (controller.Result, error) {
	c.term.live.Forget(name) // the next read must be newer than this event
	node := c.cachedNode(name)
	if node.exists || len(c.pods.OnNode(name)) == 0 {
		c.term.missing.Delete(name)
	} else {
		c.term.missing.LoadOrStore(name, c.Clock.Now())
		if left := c.quarantineLeft(name); left > 0 {
			return controller.Result{RequeueAfter: left}, nil
		}
	}
	for _, pod := range c.pods.OnNode(name) {
		if reasonFor(pod, node, false, false) != none {
			var wait time.Duration
			if !node.exists { // a controller may replace the pods of a missing node for ever
				wait = min(c.cfg.Quarantine, c.cfg.Quarantine-c.Clock.Since(pod.CreationTimestamp.Time))
			}
			c.podLoop.AddAfter(podkey.ForPod(pod), wait)
		}
	}
	return controller.Result{}, nil
}

// reconcileCount queues the finished pods in excess of the threshold.
func (c *Controller) reconcileCount(context.Context, string) (controller.Result, error) {
	excess := surplusPods(c.pods.List(), c.cfg.TerminatedPodThreshold)
	chosen := make(map[types.UID]bool, len(excess))
	for _, pod := range excess {
		chosen[pod.UID] = true
	}
	c.term.surplus.Store(&chosen)
	for _, pod := range excess {
		c.podLoop.Add(podkey.ForPod(pod))
	}
	return controller.Result{RequeueAfter: c.cfg.Period}, nil
}

// reconcilePod collects a pod if there is a reason.
func (c *Controller) reconcilePod(ctx context.Context, key podkey.Key) (controller.Result, error) {
	pod, ok := c.pods.Get(key.Name)
	if !ok || pod.UID != key.UID || pod.IsFinished() && isForceDeleted(pod) {
		return controller.Result{}, nil
	}
	reason := reasonFor(pod, c.cachedNode(pod.NodeName), c.quarantineLeft(pod.NodeName) > 0, c.isSurplus(key.UID))
	if reason == none {
		return controller.Result{}, nil
	}
	collected, err := c.collect(ctx, key, pod, reason)
	if !collected || outcome.IsNotFound(err, key.Name.Name) {
		// The cached reason is outdated: decide again when the caches have caught up.
		return controller.Result{RequeueAfter: c.cfg.Quarantine}, nil
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		c.metrics.errors.WithLabelValues(key.Name.Namespace, string(reason)).Inc()
	}
	return controller.Result{}, err
}

// collect reads the pod and its node live and performs the remaining steps. collect returns false if the live
// objects give no reason. A finished pod of the surplus is not read, because finished pods stay finished.
func (c *Controller) collect(ctx context.Context, key podkey.Key, cached *caches.Pod, reason collectReason) (bool, error) {
	if reason == terminated && cached.IsFinished() {
		return true, c.markAndDelete(ctx, cached, reason)
	}
	pod, err := c.pods.ReadByName(ctx, c.Client, key.Name)
	if err != nil || pod == nil || pod.UID != key.UID {
		return true, err
	}
	if pod.NodeName != cached.NodeName {
		return false, nil
	}
	var node nodeState
	if pod.NodeName != "" {
		if node, err = c.term.live.Get(ctx, pod.NodeName, time.Time{}); err != nil {
			return true, err
		}
	}
	reason = reasonFor(pod, node, c.quarantineLeft(pod.NodeName) > 0, c.isSurplus(key.UID))
	if reason == none {
		return false, nil
	}
	return true, c.markAndDelete(ctx, pod, reason)
}

// markAndDelete performs the remaining steps for a pod.
func (c *Controller) markAndDelete(ctx context.Context, pod *caches.Pod, reason collectReason) error {
	if !pod.IsFinished() {
		if err := c.setFailed(ctx, pod, reason); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, outcome.MaxCompletionDelay) // a later retry decides again
	defer cancel()
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.metrics.deletes.WithLabelValues(pod.Namespace, string(reason)).Inc()
	klog.FromContext(ctx).V(2).Info("Deleted a pod without grace", "pod", klog.KObj(pod), "reason", reason, "node", klog.KRef("", pod.NodeName))
	return nil
}

// setFailed sets the phase of a pod to Failed.
func (c *Controller) setFailed(ctx context.Context, pod *caches.Pod, reason collectReason) error {
	status := corev1ac.PodStatus().WithPhase(corev1.PodFailed).WithObservedGeneration(pod.Generation)
	if reason == orphaned {
		status.WithConditions(podstatus.DisruptionTarget(pod, markReason, markMessage, c.Clock.Now()))
	}
	return podstatus.Send(ctx, c.Client, podstatus.NewChange(pod, status))
}

func (c *Controller) cachedNode(name string) nodeState {
	if node, ok := c.nodes.Get(cache.ObjectName{Name: name}); ok {
		return stateOf(node)
	}
	return nodeState{}
}

// readNode reads the state of a node from the API server.
func (c *Controller) readNode(ctx context.Context, name string) (nodeState, error) {
	node, err := live.Find(ctx, name, c.Client.CoreV1().Nodes().Get)
	if node == nil {
		return nodeState{}, err
	}
	return stateOf(node), nil
}

// quarantineLeft returns the rest of the quarantine of a missing node, the whole quarantine of any other node.
func (c *Controller) quarantineLeft(name string) time.Duration {
	since, ok := c.term.missing.Load(name)
	if !ok {
		return max(1, c.cfg.Quarantine)
	}
	return c.cfg.Quarantine - c.Clock.Since(since.(time.Time))
}

func (c *Controller) isSurplus(pod types.UID) bool {
	chosen := c.term.surplus.Load()
	return chosen != nil && (*chosen)[pod]
}
