package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"minikcm/internal/kubelet"
)

type scene struct {
	title string
	play  func(context.Context, *stage) error
}

const namespace, name = "demo", "web"

var scenes = []scene{
	{"A ReplicaSet of three (examples/web.yaml)", create},
	{"A pod is killed", killPod},
	{"A Service gets its endpoints, and a pod fails its readiness probe", serve},
	{"Scaled to ten, and back to three", scale},
	{"A node dies", killNode},
	{"A Deployment is rolled out, and the rollout is undone halfway", rollOut},
	{"An owner is deleted in the foreground, and waits for its dependents", cascade},
	{"The namespace is deleted, and created again", deleteNamespace},
}

func create(ctx context.Context, s *stage) error {
	text, err := os.ReadFile("examples/web.yaml")
	if err != nil {
		return fmt.Errorf("read the example: %w", err)
	}
	var web appsv1.ReplicaSet
	if err := yaml.UnmarshalStrict(text, &web); err != nil {
		return fmt.Errorf("parse the example: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	if _, err := s.client.AppsV1().ReplicaSets(namespace).Create(ctx, &web, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ReplicaSet: %w", err)
	}
	if err := s.wait(ctx, "ReplicaSet web", time.Minute, s.replicas(3)); err != nil {
		return err
	}
	return s.show(ctx)
}

func killPod(ctx context.Context, s *stage) error {
	before, err := s.pods(ctx)
	if err != nil {
		return err
	}
	victim := before[0].Name
	s.say("kubectl delete pod %s", victim)
	if err := s.client.CoreV1().Pods(namespace).Delete(ctx, victim, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod: %w", err)
	}
	if err := s.wait(ctx, "replacement", time.Minute, func(ctx context.Context) (string, bool, error) {
		now, err := s.pods(ctx)
		for _, p := range now {
			if !slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID }) {
				return placement(&p), kubelet.IsReady(&p), err
			}
		}
		return "", false, err
	}); err != nil {
		return err
	}
	return s.wait(ctx, "ReplicaSet web", time.Minute, s.replicas(3))
}

// unready is the annotation of a pod whose readiness probe fails.
const unready = "demo/unready"

func serve(ctx context.Context, s *stage) error {
	s.say("kubectl expose replicaset web --port=80")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	services, pods := s.client.CoreV1().Services(namespace), s.client.CoreV1().Pods(namespace)
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Service: %w", err)
	}
	if err := s.wait(ctx, "endpoints of web", time.Minute, s.endpoints(3)); err != nil {
		return err
	}
	all, err := s.pods(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what, value string
		ready       int
	}{{"fails", `"yes"`, 2}, {"passes again", "null", 3}} {
		s.say("the readiness probe of %s %s", all[0].Name, step.what)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, unready, step.value)
		if _, err := pods.Patch(ctx, all[0].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("annotate pod: %w", err)
		}
		if err := s.wait(ctx, "endpoints of web", time.Minute, s.endpoints(step.ready)); err != nil {
			return err
		}
	}
	return nil
}

func scale(ctx context.Context, s *stage) error {
	if err := s.scaleTo(ctx, 10); err != nil {
		return err
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	cheap := slices.MinFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }).Name
	s.say("kubectl annotate pod %s %s=-1     # the oldest, but now the cheapest", cheap, corev1.PodDeletionCost)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"-1"}}}`, corev1.PodDeletionCost)
	if _, err := s.client.CoreV1().Pods(namespace).Patch(ctx, cheap, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate pod: %w", err)
	}
	if err := s.scaleTo(ctx, 3); err != nil {
		return err
	}
	return s.show(ctx)
}

func (s *stage) scaleTo(ctx context.Context, n int32) error {
	s.say("kubectl scale replicaset web --replicas=%d", n)
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	if _, err := s.client.AppsV1().ReplicaSets(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	return s.wait(ctx, "ReplicaSet web", time.Minute, s.replicas(n))
}

func killNode(ctx context.Context, s *stage) error {
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	dead := pods[0].Spec.NodeName
	s.say("kill -9 of the kubelet of %s", dead)
	s.kubelets[dead].kill()
	if err := s.wait(ctx, dead, 2*time.Minute, s.nodeIs(dead, corev1.ConditionUnknown)); err != nil {
		return err
	}
	if err := s.wait(ctx, "pods on "+dead, 2*time.Minute, s.leaving(dead)); err != nil {
		return err
	}
	if err := s.wait(ctx, "ReplicaSet web", time.Minute, s.replicas(3)); err != nil {
		return err
	}
	s.say("the kubelet of %s comes back", dead)
	if err := s.startKubelet(dead); err != nil {
		return err
	}
	if err := s.wait(ctx, dead, time.Minute, s.nodeIs(dead, corev1.ConditionTrue)); err != nil {
		return err
	}
	return s.show(ctx)
}

func deleteNamespace(ctx context.Context, s *stage) error {
	s.say("kubectl delete namespace %s", namespace)
	if err := s.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete namespace: %w", err)
	}
	start := time.Now()
	if err := s.wait(ctx, "namespace "+namespace, time.Minute, func(ctx context.Context) (string, bool, error) {
		ns, err := s.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("gone after %.1f s", time.Since(start).Seconds()), true, nil
		}
		if err != nil {
			return "", false, err
		}
		return string(ns.Status.Phase), false, nil
	}); err != nil {
		return err
	}
	return create(ctx, s)
}
