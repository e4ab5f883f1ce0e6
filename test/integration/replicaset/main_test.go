// Package replicaset tests the ReplicaSet controller on a real API server: slow admission, and the promises with lost
// responses, slow watches and killed processes.
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
func (n *namespace) apply(replicas int32) *appsv1.ReplicaSet {
	n.t.Helper()
	return n.applyNamed("rs", replicas)
}

func (n *namespace) applyNamed(name string, replicas int32) *appsv1.ReplicaSet {
	n.t.Helper()
	rs, err := n.client.AppsV1().ReplicaSets(n.name).Create(n.t.Context(), controlplane.ReplicaSet(n.name, name, replicas), metav1.CreateOptions{})
	controlplane.Must(n.t, err)
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

func (n *namespace) pods(selector string) []corev1.Pod {
	n.t.Helper()
	list, err := n.client.CoreV1().Pods(n.name).List(n.t.Context(), metav1.ListOptions{LabelSelector: selector})
	controlplane.Must(n.t, err)
	return list.Items
}

// settled waits until the ReplicaSet has its pods, and its status shows them.
func (n *namespace) settled(name string) {
	n.t.Helper()
	n.eventually(func(ctx context.Context) error {
		rs, err := n.client.AppsV1().ReplicaSets(n.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want, active := *rs.Spec.Replicas, n.active(rs)
		if rs.Status.ObservedGeneration != rs.Generation || rs.Status.Replicas != want || len(active) != int(want) {
			return fmt.Errorf("want %d pods at generation %d: %d are active, status %+v", want, rs.Generation, len(active), rs.Status)
		}
		return nil
	})
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
