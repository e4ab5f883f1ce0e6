package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"minikcm/test/controlplane"
)

const (
	fullNamespaces    = 29
	latencyNamespaces = 200
	// stragglers is the wait for late requests after the end of a namespace.
	stragglers = time.Second
)

var (
	oneNamespace   = metric{"1 of 30 objects", "s"}
	manyNamespaces = metric{"29 of 30 objects", "s"}
	manyCPU        = metric{"29 of 30 objects, manager CPU", "s"}
	manyServerCPU  = metric{"29 of 30 objects, API server CPU", "s"}
)

func measureNamespaces(ctx context.Context, r *rig, c contestant) ([]reading, error) {
	m, err := r.launchWorking(ctx, c)
	if err != nil {
		return nil, err
	}
	one, err := r.emptied(ctx, m, "one", 1, r.fill)
	if err != nil {
		return nil, err
	}
	many, err := r.emptied(ctx, m, "many", fullNamespaces, r.fill)
	return []reading{
		{oneNamespace, one.wall}, {manyNamespaces, many.wall}, {manyCPU, many.manager}, {manyServerCPU, many.apiServer},
	}, err
}

// emptied measures the deletion of n new namespaces.
func (r *rig) emptied(ctx context.Context, m *manager, prefix string, n int, fill func(context.Context, string) error) (effort, error) {
	names, err := r.createNamespaces(ctx, prefix, n, fill)
	if err != nil {
		return effort{}, err
	}
	if err := pause(ctx, settled); err != nil {
		return effort{}, err
	}
	return r.effort(ctx, m, prefix, func() (time.Time, error) { return r.deleteNamespaces(ctx, names) })
}

func (r *rig) deleteNamespaces(ctx context.Context, names []string) (end time.Time, err error) {
	namespaces, err := watchFromNow(ctx, r.client.CoreV1().Namespaces(), metav1.ListOptions{})
	if err != nil {
		return time.Time{}, err
	}
	defer namespaces.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		end, err = follow(ctx, namespaces, nth(len(names), watch.Deleted))
		return err
	})
	group.Go(func() error {
		return inParallel(ctx, writers, len(names), func(ctx context.Context, i int) error {
			if err := r.client.CoreV1().Namespaces().Delete(ctx, names[i], metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("delete namespace: %w", err)
			}
			return nil
		})
	})
	if err := group.Wait(); err != nil {
		return time.Time{}, err
	}
	return end, nil
}

func (r *rig) createNamespaces(ctx context.Context, prefix string, n int, fill func(context.Context, string) error) ([]string, error) {
	names := make([]string, n)
	return names, inParallel(ctx, writers, n, func(ctx context.Context, i int) error {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
		if err := r.createNamespace(ctx, names[i]); err != nil || fill == nil {
			return err
		}
		return fill(ctx, names[i])
	})
}

func (r *rig) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := r.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return nil
}

// fill makes 30 objects of five types, six of each.
func (r *rig) fill(ctx context.Context, namespace string) error {
	for i := range 6 {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}
		for _, create := range []func() error{
			func() error {
				_, err := r.client.CoreV1().Pods(namespace).Create(ctx, controlplane.Pod(namespace, meta.Name, nil), metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := r.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := r.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := r.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := r.client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta}, metav1.CreateOptions{})
				return err
			},
		} {
			if err := create(); err != nil {
				return fmt.Errorf("fill namespace: %w", err)
			}
		}
	}
	return nil
}
