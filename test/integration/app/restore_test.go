package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// After etcd was restored from a backup every watch waits for versions that lie in the future, and every cache holds what no longer
// exists. Nothing tells clients, so the manager has to find out, and to start anew.
func TestEtcdIsRestoredFromABackup(t *testing.T) {
	namespace := cluster.Namespace(t)
	replicaSets, pods := cluster.Client(t).AppsV1().ReplicaSets(namespace), cluster.Client(t).CoreV1().Pods(namespace)
	args := append(manager(t), "--controllers=replicaset")
	has := func(want int) {
		t.Helper()
		controlplane.Eventually(t, time.Minute, func(ctx context.Context) error {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) != want {
				err = fmt.Errorf("%d pods, want %d", len(list.Items), want)
			}
			return err
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
	has(3)
	if err := cluster.BackUpEtcd(); err != nil {
		t.Fatal(err)
	}
	create("lost", 50)
	has(53)
	if err := cluster.RestoreEtcd(); err != nil {
		t.Fatal(err)
	}
	create("new", 2) // unseen by a watch that waits for what was
	if code, err := p.Wait(time.Minute); err != nil || code != 1 {
		t.Fatalf("the manager ended with %d, %v; want 1", code, err)
	}
	p.WaitForLog(t, "the API server's data were set back")
	controlplane.StartProcess(t, args...)
	has(5)
}
