package replicaset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestSlowAdmissionDelaysNoOtherReplicaSet: many ReplicaSets wait for admission, and one in another namespace gets
// its pods at once. /healthz is ok meanwhile.
func TestSlowAdmissionDelaysNoOtherReplicaSet(t *testing.T) {
	const (
		sets, size = 8, 12
		delay      = 25 * time.Second // admission hangs for longer
	)
	slow, quick := newNamespace(t), newNamespace(t)
	hook := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"CREATE"}, Resource: "pods", Namespace: slow.name, TimeoutSeconds: 30, Ignore: true,
	})
	hook.Hang()
	c := start(t, controllerConfig(), controllerConfig())
	for i := range sets {
		slow.applyNamed(fmt.Sprintf("slow-%d", i), size)
	}
	slow.eventually(func(context.Context) error {
		if n := hook.Requests(); n < sets {
			return fmt.Errorf("admission was asked about %d pods", n)
		}
		return nil
	})
	for i := range 3 {
		begun := time.Now()
		quick.applyNamed(fmt.Sprintf("quick-%d", i), 5)
		quick.settled(fmt.Sprintf("quick-%d", i))
		if err := c.Healthy(); err != nil {
			t.Error(err)
		}
		if waited := time.Since(begun); waited > delay {
			t.Errorf("a ReplicaSet of another namespace waited %v for its pods", waited)
		}
	}
	hook.Heal()
	for i := range sets {
		slow.settled(fmt.Sprintf("slow-%d", i))
	}
}
