package leadership

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

// set creates a ReplicaSet.
func set(t *testing.T, namespace string, replicas int32) {
	t.Helper()
	if _, err := here(t).Client(t).AppsV1().ReplicaSets(namespace).Create(t.Context(), controlplane.ReplicaSet(namespace, "web", replicas), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pods waits until a ReplicaSet has so many.
func pods(t *testing.T, namespace string, want int, timeout time.Duration) {
	t.Helper()
	controlplane.Eventually(t, timeout, func(ctx context.Context) error {
		rs, err := here(t).Client(t).AppsV1().ReplicaSets(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := int(rs.Status.Replicas); got != want {
			return fmt.Errorf("%d pods, want %d", got, want)
		}
		return nil
	})
}

func created(t *testing.T, want int, contenders ...*contender) {
	t.Helper()
	taken := takings(leaseChanges(t))
	total := 0
	for _, c := range contenders {
		for _, w := range podCreates(t, c.user) {
			total++
			if last := controlplane.LastLeaseChange(taken, w.StageTimestamp.Time); last.User != c.user {
				t.Errorf("%s created a pod at %v, when %q had taken the lease at %v", c.user, w.StageTimestamp.Format(time.StampMilli), last.User,
					last.Answered.Format(time.StampMilli))
			}
		}
	}
	if total != want {
		t.Errorf("%d pods were created, want %d", total, want)
	}
}

// leaseLasts waits until the Lease is held for so many seconds.
func leaseLasts(t *testing.T, seconds int32, timeout time.Duration) {
	t.Helper()
	controlplane.Eventually(t, timeout, func(ctx context.Context) error {
		lease, err := lease(ctx, t)
		if err != nil {
			return err
		}
		if got := *lease.Spec.LeaseDurationSeconds; got != seconds {
			return fmt.Errorf("the lease lasts %d s, want %d", got, seconds)
		}
		return nil
	})
}

// TestSlowAdmissionIsOutlasted has a webhook that takes longer than a write has in the usual term. After SIGTERM the
// next leader must not create the pods again.
func TestSlowAdmissionIsOutlasted(t *testing.T) {
	quiet(t)
	const replicas = 2
	namespace := here(t).Namespace(t)
	hook := here(t).Webhook(t, controlplane.Webhook{Operations: []string{"CREATE"}, Resource: "pods", Namespace: namespace, TimeoutSeconds: 20})
	hook.Delay(6 * time.Second)
	leader, standby := pair(t, startDirect)
	set(t, namespace, replicas)
	leaseLasts(t, 42, 20*time.Second)
	repeated(t, leader)
	leader.signal(t, syscall.SIGTERM)
	pods(t, namespace, replicas, time.Minute)
	created(t, replicas, leader, standby)
	judge(t, leader, standby)
}

// repeated waits until a contender has sent a second write for a pod.
func repeated(t *testing.T, c *contender) {
	t.Helper()
	controlplane.Eventually(t, 30*time.Second, func(context.Context) error {
		sent := here(t).AuditLogSince(t, here(t).since, controlplane.ByUser(c.user), controlplane.Received, controlplane.ByResource("pods"), controlplane.ByVerb("create"))
		if len(sent) < 2 {
			return fmt.Errorf("%d creates", len(sent))
		}
		return nil
	})
}
