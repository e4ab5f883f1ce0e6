package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controllers/internal/live"
)

// readNode reads a node live. It returns nil if no node has this name and UID.
func (c *Controller) readNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := live.Find(ctx, node.Name, c.reads.CoreV1().Nodes().Get)
	c.api.observeRequest(err)
	if found != nil && found.UID != node.UID {
		return nil, nil
	}
	return found, err
}

// updateStatus writes the status of a node that was read live.
func (c *Controller) updateStatus(ctx context.Context, live *corev1.Node) (*corev1.Node, error) {
	node, err := c.Client.CoreV1().Nodes().UpdateStatus(ctx, live, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("set node status: %w", err)
	}
	c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.expectedVersion = node.ResourceVersion })
	return node, nil
}

// patchNode writes the whole list of taints, which has no merge key, and the given labels. Like every write of a
// node, the patch carries the resource version.
func (c *Controller) patchNode(ctx context.Context, node *corev1.Node, taints []corev1.Taint, labels map[string]string) error {
	meta := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion, "labels": labels}
	patch, _ := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"taints": taints}})
	patched, err := c.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch node: %w", err)
	}
	c.health.change(node.Name, node.UID, func(h *nodeHealth) { h.expectedVersion = patched.ResourceVersion })
	return nil
}
