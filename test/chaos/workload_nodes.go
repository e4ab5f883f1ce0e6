package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const userTaint = "chaos.example.com/maintenance"

func (w *workload) kubeletsThat(on bool) []*nodeKubelet {
	return slices.DeleteFunc(slices.Clone(w.kubelets), func(k *nodeKubelet) bool { return k.isOn() != on })
}

func (w *workload) silenceNode(context.Context) error {
	if len(w.kubeletsThat(false)) >= deadNodes {
		return nil
	}
	k, _ := pick(w.kubeletsThat(true), w.draw)
	w.note(k.name, "kubelet goes silent")
	k.set(false)
	return nil
}

func (w *workload) wakeNode(context.Context) error {
	if k, ok := pick(w.kubeletsThat(false), w.draw); ok {
		w.note(k.name, "kubelet comes back")
		k.set(true)
	}
	return nil
}

func (w *workload) deleteNode(ctx context.Context) error {
	k, ok := pick(w.kubeletsThat(false), w.draw)
	if !ok {
		return nil
	}
	w.note(k.name, "node deleted by the user")
	return w.client.CoreV1().Nodes().Delete(ctx, k.name, metav1.DeleteOptions{})
}

func (w *workload) taintNode(ctx context.Context) error {
	effect, _ := pick([]corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}, w.draw)
	name := w.kubelets[w.draw.IntN(len(w.kubelets))].name
	return w.editTaints(ctx, name, func(t []corev1.Taint) []corev1.Taint {
		if slices.ContainsFunc(t, func(t corev1.Taint) bool { return t.Key == userTaint }) {
			return t
		}
		w.note(name, "tainted %s:%s by the user", userTaint, effect)
		return append(t, corev1.Taint{Key: userTaint, Effect: effect})
	})
}

func (w *workload) untaintNode(ctx context.Context) error {
	for _, node := range current(w.histories.nodes, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, byUser)
	}) {
		w.note(node.Name, "the user's taints removed")
		if err := w.editTaints(ctx, node.Name, func(t []corev1.Taint) []corev1.Taint { return slices.DeleteFunc(t, byUser) }); err != nil {
			return err
		}
	}
	return nil
}

func byUser(t corev1.Taint) bool { return t.Key == userTaint || t.Key == corev1.TaintNodeOutOfService }

func (w *workload) outOfService(ctx context.Context) error {
	k, ok := pick(w.kubeletsThat(false), w.draw)
	if !ok {
		return nil
	}
	w.note(k.name, "out of service, says the user")
	return w.editTaints(ctx, k.name, func(t []corev1.Taint) []corev1.Taint {
		return append(slices.DeleteFunc(t, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }),
			corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	})
}

func (w *workload) editTaints(ctx context.Context, name string, edit func([]corev1.Taint) []corev1.Taint) error {
	node, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return gone(err)
	}
	node.Spec.Taints = edit(node.Spec.Taints)
	_, err = w.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("edit taints: %w", err)
	}
	return nil
}
