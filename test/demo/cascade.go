package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"minikcm/test/controlplane"
)

const (
	library = "library"
	pinned  = "example.com/catalogued"
)

func cascade(ctx context.Context, s *stage) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: library}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	d, err := s.client.AppsV1().Deployments(library).Create(ctx, controlplane.Deployment(library, library, 4), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Deployment: %w", err)
	}
	catalogue := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "catalogue", Finalizers: []string{pinned}, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, BlockOwnerDeletion: ptr.To(true)},
	}}}
	if _, err := s.client.CoreV1().ConfigMaps(library).Create(ctx, catalogue, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ConfigMap: %w", err)
	}
	s.say("kubectl apply: a Deployment of four pods, and a ConfigMap that it owns, with the finalizer %s", pinned)
	if err := s.wait(ctx, "Deployment library", time.Minute, s.available(4)); err != nil {
		return err
	}
	s.say("kubectl delete deployment library --cascade=foreground")
	policy := metav1.DeletePropagationForeground
	if err := s.client.AppsV1().Deployments(library).Delete(ctx, library, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		return fmt.Errorf("delete Deployment: %w", err)
	}
	if err := s.wait(ctx, "dependents", time.Minute, s.owned(1)); err != nil {
		return err
	}
	s.say("the Deployment waits; an event explains the reason after half a minute:")
	if err := s.wait(ctx, "event", time.Minute, s.blockedEvent); err != nil {
		return err
	}
	s.say("the finalizer is removed")
	if _, err := s.client.CoreV1().ConfigMaps(library).Patch(ctx, catalogue.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	if err := s.wait(ctx, "dependents", time.Minute, s.owned(0)); err != nil {
		return err
	}
	return s.wait(ctx, "Deployment library", time.Minute, func(ctx context.Context) (string, bool, error) {
		_, err := s.client.AppsV1().Deployments(library).Get(ctx, library, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "gone", true, nil
		}
		return "", false, err
	})
}

func (s *stage) blockedEvent(ctx context.Context) (string, bool, error) {
	events, err := s.client.CoreV1().Events(library).List(ctx, metav1.ListOptions{FieldSelector: "reason=ForegroundDeletionBlocked"})
	if err != nil || len(events.Items) == 0 {
		return "no event", false, err
	}
	return events.Items[0].Message, true, nil
}

func (s *stage) available(n int32) look {
	return func(ctx context.Context) (string, bool, error) {
		var d *appsv1.Deployment
		d, err := s.client.AppsV1().Deployments(library).Get(ctx, library, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		return fmt.Sprintf("%d available", d.Status.AvailableReplicas), d.Status.AvailableReplicas == n, nil
	}
}

func (s *stage) owned(n int) look {
	return func(ctx context.Context) (string, bool, error) {
		sets, err1 := s.client.AppsV1().ReplicaSets(library).List(ctx, metav1.ListOptions{})
		pods, err2 := s.client.CoreV1().Pods(library).List(ctx, metav1.ListOptions{})
		maps, err3 := s.client.CoreV1().ConfigMaps(library).List(ctx, metav1.ListOptions{})
		if err := errors.Join(err1, err2, err3); err != nil {
			return "", false, err
		}
		return fmt.Sprintf("%d ReplicaSets, %d pods, %d ConfigMaps", len(sets.Items), len(pods.Items), len(maps.Items)),
			len(sets.Items)+len(pods.Items)+len(maps.Items) == n, nil
	}
}
