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

// TestSlowAdmissionIsOutlasted has a webhook that takes longer than a write has in the usual term. After SIGTERM the
// next leader must not create the pods again.
func TestSlowAdmissionIsOutlasted(t *testing.T) {
	startCluster(t)
	const replicas = 2
	namespace, client := here(t).Namespace(t), here(t).Client(t)
	hook := here(t).Webhook(t, controlplane.Webhook{Operations: []string{"CREATE"}, Resource: "pods", Namespace: namespace, TimeoutSeconds: 20})
	hook.Delay(6 * time.Second)
	leader, standby := pair(t, startDirect)
	here(t).Create(t, controlplane.ReplicaSet(namespace, "web", replicas))
	controlplane.Eventually(t, 30*time.Second, func(ctx context.Context) error {
		lease, err := client.CoordinationV1().Leases(leaseSpace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		creates := here(t).AuditLog(t, controlplane.ByUser(leader.user), controlplane.Received, controlplane.ByResource("pods"), controlplane.ByVerb("create"))
		if seconds := *lease.Spec.LeaseDurationSeconds; seconds != 42 || len(creates) < 2 {
			return fmt.Errorf("the lease lasts %d s after %d creates, want 42 s and a repeated create", seconds, len(creates))
		}
		return nil
	})
	controlplane.Must(t, leader.Signal(syscall.SIGTERM))
	controlplane.AwaitReplicas(t, client, namespace, "web", replicas)
	taken, created := terms(t), 0
	for _, c := range []*contender{leader, standby} {
		for _, w := range podCreates(t, c.user) {
			created++
			if last := controlplane.LastLeaseChange(taken, w.StageTimestamp.Time); last.User != c.user {
				t.Errorf("%s created a pod at %v, after %q had taken the lease at %v", c.user, w.StageTimestamp, last.User, last.Answered)
			}
		}
	}
	if created != replicas {
		t.Errorf("%d pods were created, want %d", created, replicas)
	}
	judge(t, leader, standby)
}
