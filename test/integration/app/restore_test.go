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

// After a restore of etcd, watches wait for versions of the future and caches hold objects that no longer exist. The
// API server sends no error, so the manager must detect the restore itself. It exits, and its successor fills the
// caches again.
func TestManagerExitsAfterEtcdRestore(t *testing.T) {
	controlplane.SkipUnlessLong(t)
	namespace := cluster.Namespace(t)
	replicaSets, pods := cluster.Client(t).AppsV1().ReplicaSets(namespace), cluster.Client(t).CoreV1().Pods(namespace)
	args := append(manager(t), "--controllers=replicaset")
	waitForPods := func(name string, want int) {
		t.Helper()
		controlplane.Eventually(t, time.Minute, func(ctx context.Context) error {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			got := 0
			for i := range list.Items {
				if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == name {
					got++
				}
			}
			if got != want {
				return fmt.Errorf("%s has %d pods, want %d", name, got, want)
			}
			return nil
		})
	}
	create := func(name string, replicas int32) {
		t.Helper()
		if _, err := replicaSets.Create(t.Context(), controlplane.ReplicaSet(namespace, name, replicas), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	p := controlplane.StartProcess(t, args...)
	create("kept", 3)
	waitForPods("kept", 3)
	if err := cluster.BackUpEtcd(); err != nil {
		t.Fatal(err)
	}
	configMaps := cluster.Client(t).CoreV1().ConfigMaps(namespace)
	for range 1000 { // more than API servers write at their start, so that versions stay lower than before
		if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "lost-"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("lost", 50)
	waitForPods("lost", 50)
	if err := cluster.RestoreEtcd(); err != nil {
		t.Fatal(err)
	}
	create("new", 2) // not shown by watches of the old data
	if code, err := p.Wait(5 * time.Minute); err != nil || code != 1 {
		t.Fatalf("the manager ended with %d, %v; want 1", code, err)
	}
	p.WaitForLog(t, "resourceVersion went backwards")
	controlplane.StartProcess(t, args...)
	waitForPods("kept", 3)
	waitForPods("new", 2)
}
