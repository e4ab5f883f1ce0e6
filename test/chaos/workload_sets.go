package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	finalizer   = "chaos.example.com/pinned"
	quotaName   = "few-pods"
	detachedKey = "detached"
)

func (w *workload) someSet() (*appsv1.ReplicaSet, bool) {
	return pick(current(w.histories.replicaSets, func(rs *appsv1.ReplicaSet) bool {
		return rs.Namespace == wild && rs.DeletionTimestamp == nil
	}), w.draw)
}

func (w *workload) scale(ctx context.Context) error {
	rs, ok := w.someSet()
	if !ok {
		return nil
	}
	n := w.draw.IntN(9)
	w.note(keyOf(rs), "scaled from %d to %d", *rs.Spec.Replicas, n)
	return w.patchSet(ctx, rs, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))
}

func (w *workload) changeTemplate(ctx context.Context) error {
	rs, ok := w.someSet()
	if !ok {
		return nil
	}
	w.note(keyOf(rs), "template changed")
	return w.patchSet(ctx, rs, fmt.Sprintf(`{"spec":{"minReadySeconds":%d,"template":{"metadata":{"labels":{"round":"%d"}}}}}`, w.draw.IntN(3), w.draw.IntN(4)))
}

func (w *workload) patchSet(ctx context.Context, rs *appsv1.ReplicaSet, patch string) error {
	_, err := w.client.AppsV1().ReplicaSets(rs.Namespace).Patch(ctx, rs.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (w *workload) makeSet(ctx context.Context) error {
	name := fmt.Sprintf("wild-%d", w.draw.IntN(wildSets+2))
	return w.createSet(ctx, w.set(wild, name, int32(w.draw.IntN(7))))
}

func (w *workload) deleteSet(ctx context.Context) error {
	rs, ok := w.someSet()
	if !ok {
		return nil
	}
	how, _ := pick([]metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}, w.draw)
	w.note(keyOf(rs), "deleted, propagation %s", how)
	return w.client.AppsV1().ReplicaSets(rs.Namespace).Delete(ctx, rs.Name, metav1.DeleteOptions{PropagationPolicy: &how})
}

// releasePod changes the labels so that the ReplicaSet has to let go.
func (w *workload) releasePod(ctx context.Context) error {
	pod, ok := w.somePod(func(p *corev1.Pod) bool { return p.Namespace == wild && active(p) && owned(p) && p.Labels["app"] != "" })
	if !ok {
		return nil
	}
	w.note(wild+"/"+pod.Labels["app"], "pod %s released", pod.Name)
	return w.patchPod(ctx, pod, fmt.Sprintf(`{"metadata":{"labels":{"app":null,%q:%q}}}`, detachedKey, pod.Labels["app"]))
}

func (w *workload) readoptPod(ctx context.Context) error {
	pod, ok := w.somePod(func(p *corev1.Pod) bool { return p.Namespace == wild && active(p) && p.Labels[detachedKey] != "" })
	if !ok {
		return nil
	}
	app := pod.Labels[detachedKey]
	w.note(wild+"/"+app, "pod %s given back", pod.Name)
	return w.patchPod(ctx, pod, fmt.Sprintf(`{"metadata":{"labels":{"app":%q,%q:null}}}`, app, detachedKey))
}

func (w *workload) patchPod(ctx context.Context, pod *corev1.Pod, patch string) error {
	_, err := w.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// makeOrphan makes a pod that some ReplicaSet has to adopt.
func (w *workload) makeOrphan(ctx context.Context) error {
	return w.makePod(ctx, func(*corev1.Pod) {})
}

func (w *workload) makeForeign(ctx context.Context) error {
	return w.makePod(ctx, func(p *corev1.Pod) {
		p.Name = "foreign-" + p.Name
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "example.com/v1", Kind: "Sculptor", Name: "somebody", UID: "11111111-2222-3333-4444-555555555555", Controller: ptr.To(true),
		}}
	})
}

func (w *workload) makePod(ctx context.Context, edit func(*corev1.Pod)) error {
	rs, ok := w.someSet()
	if !ok {
		return nil
	}
	w.pods++
	pod := controlplane.Pod(wild, fmt.Sprintf("stray-%d", w.pods), rs.Spec.Selector.MatchLabels, edit, func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	w.note(keyOf(rs), "pod %s made by the user", pod.Name)
	_, err := w.client.CoreV1().Pods(wild).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func (w *workload) setQuota(ctx context.Context) error {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: wild, Name: quotaName},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}},
	}
	w.note("", "quota of 3 pods in %s", wild)
	_, err := w.client.CoreV1().ResourceQuotas(wild).Create(ctx, quota, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// There is no quota controller, and nothing is admitted without a status.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}
	_, err = w.client.CoreV1().ResourceQuotas(wild).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	return err
}

func (w *workload) liftQuota(ctx context.Context) error {
	w.note("", "no quota in %s", wild)
	return gone(w.client.CoreV1().ResourceQuotas(wild).Delete(ctx, quotaName, metav1.DeleteOptions{}))
}

func (w *workload) pinPod(ctx context.Context) error {
	pod, ok := w.somePod(func(p *corev1.Pod) bool {
		return p.Namespace != steady && p.Namespace != rolling && active(p) && len(p.Finalizers) == 0
	})
	if !ok {
		return nil
	}
	w.note(keyOf(pod), "pod pinned and deleted")
	if err := w.patchPod(ctx, pod, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer)); err != nil {
		return err
	}
	return w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
}

// unpinPods lets every pinned pod go.
func (w *workload) unpinPods(ctx context.Context) error {
	for _, pod := range current(w.histories.pods, func(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, finalizer) }) {
		if err := w.patchPod(ctx, pod, `{"metadata":{"finalizers":null}}`); gone(err) != nil {
			return err
		}
	}
	return nil
}

func (w *workload) setDeletionCost(ctx context.Context) error {
	pod, ok := w.somePod(func(p *corev1.Pod) bool { return p.Namespace == wild && active(p) })
	if !ok {
		return nil
	}
	return w.patchPod(ctx, pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, corev1.PodDeletionCost, w.draw.IntN(100)-50))
}
