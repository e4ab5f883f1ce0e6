package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"minikcm/internal/kubelet"
	"minikcm/pkg/caches"
	"minikcm/test/controlplane"
)

const (
	shop         = "shop"
	shopReplicas = 8
	shopSurge    = 2
	shopMissing  = 1
)

func rollOut(ctx context.Context, s *stage) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	s.say("kubectl create deployment shop --replicas=%d     # maxSurge %d, maxUnavailable %d: at most %d pods, at least %d ready",
		shopReplicas, shopSurge, shopMissing, shopReplicas+shopSurge, shopReplicas-shopMissing)
	if _, err := s.client.AppsV1().Deployments(shop).Create(ctx, shopDeployment(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Deployment: %w", err)
	}
	if err := s.wait(ctx, "Deployment shop", time.Minute, s.rolledOut()); err != nil {
		return err
	}
	s.say("kubectl set image deployment shop main=pause:3.11")
	if err := s.setShopImage(ctx, "registry.k8s.io/pause:3.11"); err != nil {
		return err
	}
	if err := s.wait(ctx, "rollout", time.Minute, s.updated(shopReplicas/2)); err != nil {
		return err
	}
	s.say("kubectl rollout undo deployment shop     # halfway")
	if err := s.setShopImage(ctx, "registry.k8s.io/pause:3.10"); err != nil {
		return err
	}
	if err := s.wait(ctx, "Deployment shop", time.Minute, s.rolledOut()); err != nil {
		return err
	}
	s.say("kubectl delete namespace %s", shop)
	if err := s.client.CoreV1().Namespaces().Delete(ctx, shop, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete namespace: %w", err)
	}
	return nil
}

func shopDeployment() *appsv1.Deployment {
	return controlplane.Deployment(shop, shop, shopReplicas, func(d *appsv1.Deployment) {
		surge, unavailable := intstr.FromInt32(shopSurge), intstr.FromInt32(shopMissing)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}
	})
}

func (s *stage) setShopImage(ctx context.Context, image string) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
	if _, err := s.client.AppsV1().Deployments(shop).Patch(ctx, shop, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change the template: %w", err)
	}
	return nil
}

// rolledOut waits until all pods are of the current template and ready.
func (s *stage) rolledOut() look {
	return s.shopPods(func(pods shopCount) bool {
		return pods == shopCount{active: shopReplicas, updated: shopReplicas, ready: shopReplicas}
	})
}

// updated waits until at least n pods are of the current template.
func (s *stage) updated(n int) look {
	return s.shopPods(func(pods shopCount) bool { return pods.updated >= n })
}

// shopCount counts the pods that are neither being deleted nor finished.
type shopCount struct{ active, updated, ready int }

// shopPods counts the pods of one list. The status of a Deployment is the sum of the statuses of its ReplicaSets,
// which lag behind, and may exceed the bound.
func (s *stage) shopPods(wanted func(shopCount) bool) look {
	return func(ctx context.Context) (string, bool, error) {
		d, err := s.client.AppsV1().Deployments(shop).Get(ctx, shop, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		list, err := s.client.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, err
		}
		var n shopCount
		for _, pod := range list.Items {
			if !caches.TrimPod(&pod).IsActive() {
				continue
			}
			n.active++
			if pod.Spec.Containers[0].Image == d.Spec.Template.Spec.Containers[0].Image {
				n.updated++
			}
			if kubelet.IsReady(&pod) {
				n.ready++
			}
		}
		return fmt.Sprintf("%d pods, %d of the current template, %d ready", n.active, n.updated, n.ready), wanted(n), nil
	}
}
