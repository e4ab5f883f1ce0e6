// Package replicaset tests the ReplicaSet controller on a real API server: stories of users, and the promises with
// lost responses, frozen watches and killed processes.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 20 * time.Second

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

// defaults is the configuration that the daemon runs with.
func defaults() replicaset.Config {
	return replicaset.Config{PodDeletionCost: true, TerminatingReplicas: true}
}

func controllerConfig() *rest.Config {
	return cluster.ManagerConfig("replicaset-controller", replicaset.Name)
}

type loop struct {
	*controlplane.Loop
	controller *replicaset.Controller
}

// standby builds a controller with synced caches and without a term. Writes and live reads use cfg, the caches use
// watch.
func standby(t testing.TB, config replicaset.Config, cfg, watch *rest.Config, clock clock.WithTicker) *loop {
	t.Helper()
	l := &loop{}
	l.Loop = controlplane.Standby(t, controlplane.LoopOptions{Config: cfg, Watch: watch}, func(b controlplane.LoopBase) ([]controlplane.RunFunc, error) {
		pods, err1 := b.Caches.Pods()
		sets, err2 := b.Caches.ReplicaSets()
		namespaces, err3 := b.Caches.Namespaces()
		var err error
		l.controller, err = replicaset.New(config, replicaset.Deps{
			Client: b.Client, Clock: clock, Metrics: b.Metrics, Pods: pods, ReplicaSets: sets, Namespaces: namespaces, Recorder: b.Recorder(replicaset.Name),
		})
		return []controlplane.RunFunc{l.controller.Run}, errors.Join(err1, err2, err3, err)
	})
	return l
}

func (l *loop) beginTerm() *loop {
	l.BeginTerm()
	return l
}

func start(t testing.TB, config replicaset.Config) *loop {
	t.Helper()
	return standby(t, config, controllerConfig(), controllerConfig(), clock.RealClock{}).beginTerm()
}

type namespace struct {
	t      testing.TB
	name   string
	client kubernetes.Interface
}

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	return &namespace{t: t, name: cluster.Namespace(t), client: cluster.Client(t)}
}

// apply creates a ReplicaSet named rs that selects app=rs.
func (n *namespace) apply(replicas int32, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	n.t.Helper()
	return n.applyNamed("rs", replicas, edits...)
}

func (n *namespace) applyNamed(name string, replicas int32, edits ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	n.t.Helper()
	rs, err := n.client.AppsV1().ReplicaSets(n.name).
		Create(n.t.Context(), controlplane.ReplicaSet(n.name, name, replicas, edits...), metav1.CreateOptions{})
	if err != nil {
		n.t.Fatalf("create ReplicaSet: %v", err)
	}
	return rs
}

func (n *namespace) create(pods ...*corev1.Pod) []*corev1.Pod {
	n.t.Helper()
	out := make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		var err error
		if out[i], err = n.client.CoreV1().Pods(n.name).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			n.t.Fatalf("create pod: %v", err)
		}
	}
	return out
}

func (n *namespace) get(name string) *appsv1.ReplicaSet {
	n.t.Helper()
	rs, err := n.client.AppsV1().ReplicaSets(n.name).Get(n.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		n.t.Fatalf("get ReplicaSet: %v", err)
	}
	return rs
}

func (n *namespace) edit(name string, change func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	n.t.Helper()
	var out *appsv1.ReplicaSet
	controlplane.Eventually(n.t, patience, func(ctx context.Context) error {
		rs, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(rs)
		out, err = n.client.AppsV1().ReplicaSets(n.name).Update(ctx, rs, metav1.UpdateOptions{})
		return err
	})
	return out
}

func (n *namespace) scale(name string, replicas int32) {
	n.t.Helper()
	n.edit(name, func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &replicas })
}

func (n *namespace) editPod(name string, change func(*corev1.Pod)) {
	n.t.Helper()
	controlplane.Eventually(n.t, patience, func(ctx context.Context) error {
		pod, err := n.client.CoreV1().Pods(n.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(pod)
		_, err = n.client.CoreV1().Pods(n.name).Update(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

func (n *namespace) delete(pod string, grace ...int64) {
	n.t.Helper()
	opts := metav1.DeleteOptions{}
	if len(grace) > 0 {
		opts.GracePeriodSeconds = &grace[0]
	}
	if err := n.client.CoreV1().Pods(n.name).Delete(n.t.Context(), pod, opts); err != nil {
		n.t.Fatalf("delete pod: %v", err)
	}
}

func (n *namespace) pods(selector ...string) []corev1.Pod {
	n.t.Helper()
	opts := metav1.ListOptions{}
	if len(selector) > 0 {
		opts.LabelSelector = selector[0]
	}
	list, err := n.client.CoreV1().Pods(n.name).List(n.t.Context(), opts)
	if err != nil {
		n.t.Fatalf("list pods: %v", err)
	}
	return list.Items
}

func (n *namespace) settled(name string) *appsv1.ReplicaSet {
	n.t.Helper()
	var out *appsv1.ReplicaSet
	n.eventually(func(ctx context.Context) error {
		rs, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := *rs.Spec.Replicas
		active := n.active(rs)
		if rs.Status.ObservedGeneration != rs.Generation || rs.Status.Replicas != want || len(active) != int(want) {
			return fmt.Errorf("want %d pods at generation %d: %d are active, status %+v", want, rs.Generation, len(active), rs.Status)
		}
		out = rs
		return nil
	})
	return out
}

// active lists the names of the active pods that the ReplicaSet controls.
func (n *namespace) active(rs *appsv1.ReplicaSet) []string {
	n.t.Helper()
	var names []string
	for _, pod := range n.pods(labels.Set(rs.Spec.Selector.MatchLabels).String()) {
		if caches.TrimPod(&pod).IsActive() && metav1.IsControlledBy(&pod, rs) {
			names = append(names, pod.Name)
		}
	}
	return names
}

// shown waits until the controller's cache of pods has every earlier change: the controller has replaced a pod.
func (n *namespace) shown() {
	n.t.Helper()
	witness := n.applyNamed("witness", 1)
	n.settled("witness")
	first := n.active(witness)
	n.delete(first[0])
	n.eventually(func(context.Context) error {
		if now := n.active(witness); len(now) == 0 || now[0] == first[0] {
			return fmt.Errorf("%s has not been replaced, active pods are %v", first[0], now)
		}
		return nil
	})
}

func (n *namespace) eventually(check func(context.Context) error) {
	n.t.Helper()
	controlplane.Eventually(n.t, patience, check)
}

// status waits until the status of the ReplicaSet is as wanted.
func (n *namespace) status(name string, want func(appsv1.ReplicaSetStatus) bool) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		rs, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !want(rs.Status) {
			return fmt.Errorf("status is %+v", rs.Status)
		}
		return nil
	})
}
