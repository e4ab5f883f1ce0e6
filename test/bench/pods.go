package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	scaleSets    = 5
	podsPerSet   = 200
	scalePods    = scaleSets * podsPerSet
	statusPeriod = 20 * time.Millisecond
)

var (
	podsCreated   = metric{"1,000 pods created", "s"}
	cpuCreating   = metric{"manager CPU, creating", "s"}
	serverCreates = metric{"API server CPU, creating", "s"}
	podsDeleted   = metric{"1,000 pods deleted", "s"}
	cpuDeleting   = metric{"manager CPU, deleting", "s"}
	serverDeletes = metric{"API server CPU, deleting", "s"}
)

// measureScale counts a manager's processor time until the status of all sets is right, wall time until the pods are.
func measureScale(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	up, err := r.effort(ctx, m, "scale-up", func() (time.Time, error) {
		return r.scaled(ctx, podsPerSet, nth(scalePods, watch.Added), r.createSets)
	})
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, settled); err != nil {
		return nil, err
	}
	down, err := r.effort(ctx, m, "scale-down", func() (time.Time, error) {
		return r.scaled(ctx, 0, nth(scalePods, watch.Deleted), r.scaleToZero)
	})
	return []reading{
		{podsCreated, up.wall}, {cpuCreating, up.manager}, {serverCreates, up.apiServer},
		{podsDeleted, down.wall}, {cpuDeleting, down.manager}, {serverDeletes, down.apiServer},
	}, err
}

func (r *rig) scaled(ctx context.Context, replicas int32, last func(watch.Event) bool, do func(context.Context) error) (time.Time, error) {
	pods, err := r.watchPods(ctx, benchNamespace)
	if err != nil {
		return time.Time{}, err
	}
	defer pods.Stop()
	if err := do(ctx); err != nil {
		return time.Time{}, err
	}
	end, err := follow(ctx, pods, last)
	if err != nil {
		return time.Time{}, err
	}
	return end, poll(ctx, statusPeriod, func() (bool, error) {
		sets, err := r.client.AppsV1().ReplicaSets(benchNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list ReplicaSets: %w", err)
		}
		for _, set := range sets.Items {
			if set.Status.Replicas != replicas || set.Status.ObservedGeneration != set.Generation {
				return false, nil
			}
		}
		return true, nil
	})
}

func setName(i int) string { return fmt.Sprintf("set-%d", i) }

func podName(set string, i int) string { return fmt.Sprintf("%s-%d", set, i) }

func (r *rig) createSets(ctx context.Context) error {
	for i := range scaleSets {
		set := controlplane.ReplicaSet(benchNamespace, setName(i), podsPerSet)
		if _, err := r.client.AppsV1().ReplicaSets(benchNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create ReplicaSet: %w", err)
		}
	}
	return nil
}

func (r *rig) scaleToZero(ctx context.Context) error {
	for i := range scaleSets {
		if err := r.scale(ctx, setName(i), 0); err != nil {
			return err
		}
	}
	return nil
}

// scale sets the replicas of a ReplicaSet in benchNamespace.
func (r *rig) scale(ctx context.Context, name string, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := r.client.AppsV1().ReplicaSets(benchNamespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale ReplicaSet: %w", err)
	}
	return nil
}

func (r *rig) createOwnedPod(ctx context.Context, set *appsv1.ReplicaSet, i int) error {
	pod := controlplane.Pod(set.Namespace, podName(set.Name, i), set.Spec.Template.Labels)
	pod.Annotations, pod.Spec = set.Spec.Template.Annotations, set.Spec.Template.Spec
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
	if _, err := r.client.CoreV1().Pods(set.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	return nil
}
