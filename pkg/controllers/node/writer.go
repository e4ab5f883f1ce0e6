package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"minikcm/internal/rv"
)

// nodeWriter reads and writes nodes. Each write carries the resource version of the node.
type nodeWriter struct {
	client kubernetes.Interface
	reads  kubernetes.Interface // not rate limited
	api    *apiHealth

	written  sync.Map // node name → resource version after the last write
	outdated sync.Map // node name → resource version that met a conflict
}

// newest returns the cached node, or a live node if the cache does not show the last write or met a conflict.
// It returns nil if the node is gone.
func (w *nodeWriter) newest(ctx context.Context, cached *corev1.Node) (*corev1.Node, error) {
	written, _ := w.written.Load(cached.Name)
	conflict, _ := w.outdated.Load(cached.Name)
	if conflict == cached.ResourceVersion || written != nil && rv.Newer(written.(string), cached.ResourceVersion) {
		return w.readLive(ctx, cached)
	}
	return cached, nil
}

func (w *nodeWriter) forget(name string) {
	w.written.Delete(name)
	w.outdated.Delete(name)
}

// readLive reads a node. It returns nil if no node has this name and UID.
func (w *nodeWriter) readLive(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	live, err := w.reads.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.UID != node.UID {
		w.api.observeRead(nil)
		return nil, nil
	}
	w.api.observeRead(err)
	if err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	return live, nil
}

// updateStatus writes the status of a node that was read live.
func (w *nodeWriter) updateStatus(ctx context.Context, live *corev1.Node) (*corev1.Node, error) {
	node, err := w.client.CoreV1().Nodes().UpdateStatus(ctx, live, metav1.UpdateOptions{})
	w.api.observeWrite(err)
	if err == nil {
		w.written.Store(node.Name, node.ResourceVersion)
	}
	return writeResult("set node status", node, err)
}

// patch writes the whole list of taints, which has no merge key, and the given labels.
func (w *nodeWriter) patch(ctx context.Context, node *corev1.Node, taints []corev1.Taint, labels map[string]string) (*corev1.Node, error) {
	meta := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if labels != nil {
		meta["labels"] = labels
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"taints": taints}})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	patched, err := w.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		w.api.observeWrite(nil)
		w.written.Store(node.Name, patched.ResourceVersion)
	case apierrors.IsConflict(err):
		w.outdated.Store(node.Name, node.ResourceVersion)
	}
	return writeResult("patch node", patched, err)
}

// writeResult returns the result of a write: nil without an error if the node is gone.
func writeResult(operation string, node *corev1.Node, err error) (*corev1.Node, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	return node, nil
}
