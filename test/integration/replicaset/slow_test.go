package replicaset

import (
	"context"
	"fmt"
	"testing"
	"time"

	"minikcm/test/controlplane"
)

// TestSlowAdmissionHoldsUpNobodyElse: many ReplicaSets wait for admission, and one in another namespace gets its pods as if it were alone.
// Meanwhile the controller says that it is healthy, and in the end every pod is there.
func TestSlowAdmissionHoldsUpNobodyElse(t *testing.T) {
	sets, size, delay, rounds := 8, int32(12), 2*time.Second, 3
	if controlplane.Long() {
		sets, size, delay, rounds = 7, 500, 3*time.Second, 40 // ten minutes in all
	}
	slow, quick := newNamespace(t), newNamespace(t)
	hook := cluster.Webhook(t, controlplane.Webhook{
		Operations: []string{"CREATE"}, Resource: "pods", Namespace: slow.name, TimeoutSeconds: 10, Ignore: true,
	})
	hook.Delay(delay)
	l := start(t, defaults())
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
	if controlplane.Long() {
		hook.Hang()
	}
	began := time.Now()
	worst := time.Duration(0)
	for i := range rounds {
		worst = max(worst, quick.timeToPods(t, fmt.Sprintf("quick-%d", i)))
		if err := l.controller.Healthy(); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if controlplane.Long() {
			time.Sleep(time.Until(began.Add(time.Duration(i+1) * 15 * time.Second))) // how long it lasts is what is tested
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

// timeToPods creates a ReplicaSet and waits for its five pods.
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
