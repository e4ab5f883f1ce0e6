package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"minikcm/pkg/answer"
)

// settle gives a node the taints and labels it should have, in one patch. It returns when to look again, zero if not by itself.
func (c *Controller) settle(ctx context.Context, node *corev1.Node, now time.Time) (time.Duration, error) {
	want, granted, wait := c.noExecute(node, now)
	taints, changed := desiredTaints(node, want, metav1.NewTime(now))
	labels := missingLabels(node.Labels)
	if !changed && labels == nil {
		return wait, nil
	}
	written, err := c.patchNode(ctx, node, taints, labels)
	if err != nil {
		if granted && answer.Of(err) != answer.Unknown {
			now := c.clock.Now()
			c.wake(c.zones.refund(node.Name, now), now)
		}
		switch {
		case apierrors.IsNotFound(err):
			return 0, nil
		case apierrors.IsConflict(err):
			return c.conflict(node), nil
		}
		c.visibility.failed(writing("node", node.Name), err, c.clock.Now())
		return 0, fmt.Errorf("patch node: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Changed taints or labels of node", "taints", taints, "labels", labels)
	c.wrote(written, func(*nodeHealth) {})
	if granted {
		c.metrics.evictions.WithLabelValues(zoneOf(node)).Inc()
	}
	return wait, nil
}

// noExecute decides about a node's NoExecute taints. The zone is asked last, when nothing else speaks against a taint; granted
// tells that it has spent a token.
func (c *Controller) noExecute(node *corev1.Node, now time.Time) (want noExecute, granted bool, wait time.Duration) {
	ready := readiness(node)
	if !c.confirmed.Load() && ready != corev1.ConditionTrue {
		return noExecute{keep: true}, false, confirmRecheck // the zones may not be as the cache shows them
	}
	want = noExecuteWanted(ready, c.zones.isStopped())
	if !needsToken(node.Spec.Taints, want) {
		c.wake(c.zones.withdraw(node.Name), now)
		return want, false, 0
	}
	r, _ := c.health.get(node.Name)
	exhausted := r.heartbeat.isExhausted(c.cfg.MonitorGracePeriod)
	if why := c.suspension(exhausted, now); why != causeNone {
		return noExecute{keep: true}, false, rechecks[why]
	}
	granted, wait, e := c.zones.ask(node.Name, exhausted, c.lagging(now), now)
	c.wake(e, now)
	if !granted {
		return noExecute{keep: true}, false, wait
	}
	return want, true, 0
}

// lagging tells which nodes that count as Ready have been silent for so long that, were they asked, they might not answer, or are known
// not to be Ready and not counted so yet.
func (c *Controller) lagging(now time.Time) func(string) bool {
	return func(name string) bool {
		r, ok := c.health.get(name)
		return ok && (r.ready != corev1.ConditionTrue || r.heartbeat.isLate(r.due(c.cfg), c.cfg.MonitorGracePeriod, now))
	}
}

// patchNode writes the whole list of taints, which has no merge key, and the labels given. UID and resource version guard it.
func (c *Controller) patchNode(ctx context.Context, node *corev1.Node, taints []corev1.Taint, labels map[string]string) (*corev1.Node, error) {
	meta := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if labels != nil {
		meta["labels"] = labels
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"taints": taints}}) // no taints: null, which removes the list
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return c.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}
