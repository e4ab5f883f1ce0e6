package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Register creates a node, posts the status and creates the Lease. grace is the duration of the Lease, in whole
// seconds. Register removes the taint that the API server puts on a new node.
func Register(ctx context.Context, client kubernetes.Interface, node *corev1.Node, grace time.Duration) error {
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node: %w", err)
	}
	if err := PostReady(ctx, client, node.Name); err != nil {
		return err
	}
	untaint := []byte(`{"spec":{"taints":null}}`)
	if _, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, untaint, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("untaint node: %w", err)
	}
	return CreateLease(ctx, client, node.Name, grace)
}

// PostReady posts the status of a ready node. Conditions of other writers stay.
func PostReady(ctx context.Context, client kubernetes.Interface, node string) error {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, LastHeartbeatTime: now, LastTransitionTime: now, Reason: reason, Message: "kubelet posts its status",
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
	}}})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("post node status: %w", err)
	}
	return nil
}

func CreateLease(ctx context.Context, client kubernetes.Interface, node string, grace time.Duration) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &node, LeaseDurationSeconds: new(int32(grace.Seconds())), RenewTime: new(metav1.NowMicro()),
		},
	}
	if _, err := client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create lease: %w", err)
	}
	return nil
}

// Renew renews the Lease of a node and changes lease in place.
func Renew(ctx context.Context, client kubernetes.Interface, lease *coordinationv1.Lease) error {
	lease.Spec.RenewTime = new(metav1.NowMicro())
	renewed, err := client.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	*lease = *renewed
	return nil
}
