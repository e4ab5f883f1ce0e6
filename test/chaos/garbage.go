package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// collectGarbage plays the garbage collector for pods of ReplicaSets until ctx ends.
func (r *rig) collectGarbage(ctx context.Context) {
	for pause(ctx, 300*time.Millisecond) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		for _, rs := range current(r.histories.replicaSets, func(rs *appsv1.ReplicaSet) bool {
			return rs.DeletionTimestamp != nil && len(rs.Finalizers) > 0
		}) {
			_ = r.finishSet(ctx, rs) // again next time
		}
		for _, pod := range current(r.histories.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && setOf(p) != nil }) {
			_ = r.collect(ctx, pod)
		}
		cancel()
	}
}

// setOf is the controller reference to a ReplicaSet, nil if there is none.
func setOf(pod *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOf(pod); ref != nil && ref.Kind == "ReplicaSet" {
		return ref
	}
	return nil
}

// collect deletes a pod whose ReplicaSet is gone.
func (r *rig) collect(ctx context.Context, pod *corev1.Pod) error {
	ref := setOf(pod)
	if rs, ok := r.histories.replicaSets.get(pod.Namespace + "/" + ref.Name); ok && rs.GetUID() == ref.UID {
		return nil
	}
	rs, err := r.client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil && rs.UID == ref.UID || gone(err) != nil {
		return err
	}
	return r.deletePod(ctx, pod)
}

func (r *rig) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return gone(r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	}))
}

// finishSet deletes the pods of a ReplicaSet, or makes them orphans, and then lets it go.
func (r *rig) finishSet(ctx context.Context, rs *appsv1.ReplicaSet) error {
	pods, err := r.client.CoreV1().Pods(rs.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	orphan := slices.Contains(rs.Finalizers, metav1.FinalizerOrphanDependents)
	for _, pod := range pods.Items {
		ref := setOf(&pod)
		if ref == nil || ref.UID != rs.UID {
			continue
		}
		if orphan {
			patch := fmt.Sprintf(`{"metadata":{"uid":%q,"ownerReferences":[{"$patch":"delete","uid":%q}]}}`, pod.UID, rs.UID)
			_, err = r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		} else if pod.DeletionTimestamp == nil {
			err = r.deletePod(ctx, &pod)
		}
		if gone(err) != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	rs = rs.DeepCopy()
	rs.Finalizers = nil
	_, err = r.client.AppsV1().ReplicaSets(rs.Namespace).Update(ctx, rs, metav1.UpdateOptions{})
	return err
}
