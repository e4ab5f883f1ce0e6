package namespace_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func TestRecreatedNamespaceKeepsItsContent(t *testing.T) {
	t.Parallel()
	start(t)
	client := cluster.Client(t)
	name := create(t)
	for range 4 {
		configMap(t, client, name, "content")
		remove(t, name)
		controlplane.Eventually(t, 10*time.Second, func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Create(ctx, named(t, name), metav1.CreateOptions{})
			return err
		})
		if left := contentOf(t, name); len(left) > 0 {
			t.Errorf("content of the old namespace in the new one: %v", left)
		}
	}
	configMap(t, client, name, "content")
	controlplane.Consistently(t, 500*time.Millisecond, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps(name).Get(ctx, "content", metav1.GetOptions{})
		return err
	})
	remove(t, name)
	gone(t, name, 10*time.Second)
}
