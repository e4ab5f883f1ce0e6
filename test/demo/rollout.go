package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"minikcm/internal/kubelet"
	"minikcm/test/controlplane"
)

// The Deployment of the scene. It is in a namespace of its own, because the other scenes count the pods in theirs.
const (
	shop         = "shop"
	shopReplicas = 8
	shopSurge    = 2
	shopMissing  = 1
)

// rollOut brings a Deployment up, gives it a new template, and takes that back when half of the pods are new. All the while two watches count.
func rollOut(ctx context.Context, s *stage) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	s.say("kubectl create deployment shop --replicas=%d     # with maxSurge %d and maxUnavailable %d", shopReplicas, shopSurge, shopMissing)
	if _, err := s.client.AppsV1().Deployments(shop).Create(ctx, shopDeployment(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Deployment: %w", err)
	}
	if err := s.wait(ctx, "Deployment shop", time.Minute, s.rolledOut()); err != nil {
		return err
	}
	counts, stop, err := s.count(ctx)
	if err != nil {
		return err
	}
	defer stop()
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
	sum, available := counts.extremes()
	s.say("ReplicaSets never wanted more than %d pods in all (limit %d), and never fewer than %d pods were available (limit %d)",
		sum, shopReplicas+shopSurge, available, shopReplicas-shopMissing)
	if sum > shopReplicas+shopSurge || available < shopReplicas-shopMissing {
		return errors.New("the rollout has left its bounds")
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

// rolledOut waits until all pods are of the present template and available.
func (s *stage) rolledOut() look {
	return s.shopIs(func(d *appsv1.Deployment) bool {
		return d.Status.UpdatedReplicas == shopReplicas && d.Status.Replicas == shopReplicas && d.Status.AvailableReplicas == shopReplicas
	})
}

// updated waits until at least n pods are of the present template.
func (s *stage) updated(n int32) look {
	return s.shopIs(func(d *appsv1.Deployment) bool { return d.Status.UpdatedReplicas >= n })
}

func (s *stage) shopIs(wanted func(*appsv1.Deployment) bool) look {
	return func(ctx context.Context) (string, bool, error) {
		d, err := s.client.AppsV1().Deployments(shop).Get(ctx, shop, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		st := d.Status
		if st.ObservedGeneration != d.Generation {
			return "", false, nil // the status describes an earlier template
		}
		return fmt.Sprintf("%d pods, %d of the current template, %d available", st.Replicas, st.UpdatedReplicas, st.AvailableReplicas), wanted(d), nil
	}
}

// counts are the highest sum of the sizes of ReplicaSets and the lowest number of available pods that were seen.
type counts struct {
	lock           sync.Mutex
	sizes          map[types.UID]int
	ready          map[types.UID]bool
	sum, available int
	running        sync.WaitGroup
}

func (c *counts) extremes() (sum, available int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.sum, c.available
}

// count begins with what there is, and follows every change until stop is called.
func (s *stage) count(ctx context.Context) (_ *counts, stop func(), err error) {
	c := &counts{sizes: map[types.UID]int{}, ready: map[types.UID]bool{}, available: shopReplicas}
	ctx, cancel := context.WithCancel(ctx)
	stop = func() { cancel(); c.running.Wait() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	sets, err := s.client.AppsV1().ReplicaSets(shop).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list ReplicaSets: %w", err)
	}
	for i := range sets.Items {
		c.sizes[sets.Items[i].UID] = int(*sets.Items[i].Spec.Replicas)
	}
	pods, err := s.client.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		c.ready[pods.Items[i].UID] = kubelet.IsReady(&pods.Items[i])
	}
	for _, from := range []struct {
		version string
		watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	}{{sets.ResourceVersion, s.client.AppsV1().ReplicaSets(shop).Watch}, {pods.ResourceVersion, s.client.CoreV1().Pods(shop).Watch}} {
		w, err := from.watch(ctx, metav1.ListOptions{ResourceVersion: from.version})
		if err != nil {
			return nil, nil, fmt.Errorf("watch: %w", err)
		}
		c.running.Go(func() {
			defer w.Stop()
			for event := range w.ResultChan() {
				c.see(event)
			}
		})
	}
	return c, stop, nil
}

func (c *counts) see(event watch.Event) {
	c.lock.Lock()
	defer c.lock.Unlock()
	switch o := event.Object.(type) {
	case *appsv1.ReplicaSet:
		c.sizes[o.UID] = int(*o.Spec.Replicas)
	case *corev1.Pod:
		c.ready[o.UID] = event.Type != watch.Deleted && o.DeletionTimestamp == nil && kubelet.IsReady(o)
	}
	sum, available := 0, 0
	for _, size := range c.sizes {
		sum += size
	}
	for _, is := range c.ready {
		if is {
			available++
		}
	}
	c.sum, c.available = max(c.sum, sum), min(c.available, available)
}
