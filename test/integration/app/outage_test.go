package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func createReplicaSet(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	if _, err := cluster.Client(t).AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, name, replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitPods waits until a ReplicaSet has the number of pods.
func awaitPods(t *testing.T, namespace, name string, want int) {
	t.Helper()
	controlplane.Eventually(t, time.Minute, func(ctx context.Context) error {
		pods, err := cluster.Client(t).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && len(pods.Items) != want {
			err = fmt.Errorf("%s has %d pods, want %d", name, len(pods.Items), want)
		}
		return err
	})
}

// A control plane comes up in any order.
func TestAPIServerThatComesUpLaterIsWaitedFor(t *testing.T) {
	namespace := cluster.Namespace(t)
	createReplicaSet(t, namespace, "web", 1)
	args := append(manager(t), "--leader-elect=false", "--controllers=replicaset")
	if err := cluster.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	p := controlplane.StartProcess(t, args...)
	p.WaitForLog(t, "Waiting for the API server")
	if err := cluster.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	awaitPods(t, namespace, "web", 1)
}

// After a restore of etcd, watches wait for versions of the future and caches hold objects that no longer exist. The
// API server sends no error, so the manager must detect the restore itself. It exits, and its successor fills the
// caches again.
func TestManagerExitsAfterEtcdRestore(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	namespace := cluster.Namespace(t)
	args := append(manager(t), "--controllers=replicaset")
	p := controlplane.StartProcess(t, args...)
	createReplicaSet(t, namespace, "kept", 3)
	awaitPods(t, namespace, "kept", 3)
	if err := cluster.BackUpEtcd(); err != nil {
		t.Fatal(err)
	}
	configMaps := cluster.Client(t).CoreV1().ConfigMaps(namespace)
	for range 1000 { // more than API servers write at their start, so that versions stay lower than before
		if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "lost-"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	createReplicaSet(t, namespace, "lost", 50)
	awaitPods(t, namespace, "lost", 50)
	if err := cluster.RestoreEtcd(); err != nil {
		t.Fatal(err)
	}
	createReplicaSet(t, namespace, "new", 2) // not shown by watches of the old data
	if code, err := p.Wait(5 * time.Minute); err != nil || code != 1 {
		t.Fatalf("the manager ended with %d, %v; want 1", code, err)
	}
	p.WaitForLog(t, "resourceVersion went backwards")
	controlplane.StartProcess(t, args...)
	awaitPods(t, namespace, "kept", 3)
	awaitPods(t, namespace, "new", 2)
}
