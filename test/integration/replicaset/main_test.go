// Package replicaset tests the ReplicaSet controller on a real API server: stories of users, and the promises with
// lost responses, frozen watches and killed processes.
package replicaset

import (
	"context"
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

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/replicaset"
	"minikcm/test/controlplane"
)

// patience is for things that take milliseconds on an idle machine.
const patience = 20 * time.Second

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Audit: true}, func(c *controlplane.Cluster) { cluster = c }))
}

func controllerConfig() *rest.Config {
	return cluster.ManagerConfig("replicaset-controller", replicaset.Name)
}

// start runs the controller in this process. Writes and live reads use requests, the caches use watches.
func start(t testing.TB, requests, watches *rest.Config) controller.Controller {
	t.Helper()
	return controlplane.StartLoop(t, controlplane.LoopOptions{Config: requests, Watch: watches}, replicaset.Registration(replicaset.DefaultConfig())).Controllers[0]
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

func (n *namespace) scale(name string, replicas int32) {
	n.t.Helper()
	controlplane.Edit(n.t, n.client.AppsV1().ReplicaSets(n.name), name, func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &replicas })
}

func (n *namespace) editPod(name string, change func(*corev1.Pod)) {
	n.t.Helper()
	controlplane.Edit(n.t, n.client.CoreV1().Pods(n.name), name, change)
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
