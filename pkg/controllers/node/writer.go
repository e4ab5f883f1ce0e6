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
	"k8s.io/utils/clock"
)

// nodeWriter writes nodes, and remembers which versions its writes have left, so that nothing is decided on a cached node that does not show
// them yet. It tells visibility how its requests went.
type nodeWriter struct {
	client     kubernetes.Interface
	reads      kubernetes.Interface
	clock      clock.PassiveClock
	visibility *visibility

	lock   sync.Mutex
	ledger map[string]ledgerEntry // by name of the node
}

// ledgerEntry is what our writes of a node have shown.
type ledgerEntry struct {
	uid     types.UID
	written string // resource version that our last write gave it
	refused string // resource version that was too old for our last write
}

// isOutdated reports whether a version of the node misses our last write, or is no newer than what a write was refused for.
func (e ledgerEntry) isOutdated(version string) bool {
	return e.written != "" && !reached(version, e.written) || e.refused != "" && reached(e.refused, version)
}

// newest returns the cached node, or a live one if the cached one is outdated. Nil is a node that is gone.
func (w *nodeWriter) newest(ctx context.Context, cached *corev1.Node) (*corev1.Node, error) {
	if !w.known(cached).isOutdated(cached.ResourceVersion) {
		return cached, nil
	}
	return w.read(ctx, cached)
}

// read reads a node live. Nil is a node that is gone, or another one of the name: its events will come.
func (w *nodeWriter) read(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	live, err := w.reads.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	now := w.clock.Now()
	if err != nil && !apierrors.IsNotFound(err) {
		w.visibility.failed(readRequest, err, now)
		return nil, fmt.Errorf("read node: %w", err)
	}
	w.visibility.readSucceeded(now)
	if err != nil || live.UID != node.UID {
		return nil, nil
	}
	return live, nil
}

// updateStatus writes the status of a node that was read live. For what it returns see answered.
func (w *nodeWriter) updateStatus(ctx context.Context, live *corev1.Node) (*corev1.Node, error) {
	written, err := w.client.CoreV1().Nodes().UpdateStatus(ctx, live, metav1.UpdateOptions{})
	return w.answered("set node status", live, written, err)
}

// patch writes the whole list of taints, which has no merge key, and the labels given. UID and resource version guard it. For what it returns
// see answered.
func (w *nodeWriter) patch(ctx context.Context, node *corev1.Node, taints []corev1.Taint, labels map[string]string) (*corev1.Node, error) {
	meta := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if labels != nil {
		meta["labels"] = labels
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"taints": taints}}) // no taints: null, which removes the list
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	written, err := w.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return w.answered("patch node", node, written, err)
}

// answered records the result of a write. It returns the node as written, or nil without an error if the node is gone.
func (w *nodeWriter) answered(what string, node, written *corev1.Node, err error) (*corev1.Node, error) {
	now := w.clock.Now()
	switch {
	case err == nil:
		w.visibility.wrote(now)
		w.change(node, func(e *ledgerEntry) { e.written, e.refused = written.ResourceVersion, "" })
		return written, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsConflict(err):
		w.change(node, func(e *ledgerEntry) { e.refused = node.ResourceVersion })
	}
	w.visibility.failed(writeRequest, err, now)
	return nil, fmt.Errorf("%s: %w", what, err)
}

// known is what is known of our writes of a node.
func (w *nodeWriter) known(node *corev1.Node) ledgerEntry {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.entry(node)
}

// entry is that of a node, a new one if the last was of another node of the name.
func (w *nodeWriter) entry(node *corev1.Node) ledgerEntry {
	if e := w.ledger[node.Name]; e.uid == node.UID {
		return e
	}
	return ledgerEntry{uid: node.UID}
}

func (w *nodeWriter) change(node *corev1.Node, edit func(*ledgerEntry)) {
	w.lock.Lock()
	defer w.lock.Unlock()
	e := w.entry(node)
	edit(&e)
	w.ledger[node.Name] = e
}

// forget drops what is known of a node that is gone; an empty UID fits any.
func (w *nodeWriter) forget(name string, uid types.UID) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if e, ok := w.ledger[name]; ok && (uid == "" || e.uid == uid) {
		delete(w.ledger, name)
	}
}
