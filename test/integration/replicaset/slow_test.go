package replicaset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestSlowAdmissionHoldsUpNobodyElse: many ReplicaSets wait for admission, and one in another namespace gets its pods
// at once. /healthz is ok meanwhile.
func TestSlowAdmissionHoldsUpNobodyElse(t *testing.T) {
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
	alone := quick.timeToPods(t, "alone")
	for i := range sets {
		slow.applyNamed(fmt.Sprintf("slow-%d", i), size)
	}
	slow.eventually(func(context.Context) error {
		if n := hook.Requests(); n < sets {
			return fmt.Errorf("admission was asked about %d pods", n)
		}
		return nil
	})
	worst := time.Duration(0)
	for i := range 3 {
		worst = max(worst, quick.timeToPods(t, fmt.Sprintf("quick-%d", i)))
		if err := c.Healthy(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("five pods of another namespace: alone after %v, beside slow admission after at most %v", alone, worst)
	if worst > alone+delay {
		t.Errorf("a ReplicaSet of another namespace waited %v for its pods, alone %v", worst, alone)
	}
	hook.Heal()
	for i := range sets {
		slow.settled(fmt.Sprintf("slow-%d", i))
	}
}

func (n *namespace) timeToPods(t *testing.T, name string) time.Duration {
	t.Helper()
	asked := time.Now()
	rs := n.applyNamed(name, 5)
	n.eventually(func(context.Context) error {
		if got := len(n.active(rs)); got != 5 {
			return fmt.Errorf("%s has %d active pods, want 5", name, got)
		}
		return nil
	})
	return time.Since(asked)
}
