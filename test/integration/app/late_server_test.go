package app

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// A control plane comes up in any order.
func TestAPIServerThatComesUpLaterIsWaitedFor(t *testing.T) {
	namespace := cluster.Namespace(t)
	client := cluster.Client(t)
	if _, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	args := append(manager(t), "--leader-elect=false", "--controllers=replicaset")
	if err := cluster.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	p := controlplane.StartProcess(t, args...)
	p.WaitForLog(t, "Waiting for the API server")
	if err := cluster.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			err = errors.New("no pod yet")
		}
		return err
	})
}
