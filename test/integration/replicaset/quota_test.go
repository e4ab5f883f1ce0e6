package replicaset

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func failure(s appsv1.ReplicaSetStatus) *appsv1.ReplicaSetCondition {
	for i, c := range s.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return &s.Conditions[i]
		}
	}
	return nil
}

// TestQuota: a quota rejects pods, and the condition ReplicaFailure follows it.
func TestQuota(t *testing.T) {
	start(t, controllerConfig(), controllerConfig())
	n := newNamespace(t)
	quotas := n.client.CoreV1().ResourceQuotas(n.name)
	hard := func(pods string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	}
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: hard("2")}}, metav1.CreateOptions{})
	controlplane.Must(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard("2"), Used: hard("0")}
	_, err = quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	controlplane.Must(t, err)

	n.apply(3)
	n.status(func(s appsv1.ReplicaSetStatus) bool {
		f := failure(s)
		return s.Replicas == 2 && f != nil && f.Reason == "FailedCreate" && strings.Contains(f.Message, "exceeded quota")
	})
	n.scale("rs", 2)
	n.status(func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 2 && failure(s) == nil })
	n.scale("rs", 3)
	n.status(func(s appsv1.ReplicaSetStatus) bool { return failure(s) != nil })
	n.eventually(func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "few", metav1.GetOptions{})
		if err == nil {
			quota.Status.Hard = hard("3")
			_, err = quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		}
		return err
	})
	n.settled("rs")
	n.status(func(s appsv1.ReplicaSetStatus) bool { return failure(s) == nil })
	refused := cluster.AuditLog(t, controlplane.Completed, controlplane.ByNamespace(n.name), controlplane.ByVerb("create"),
		controlplane.ByResource("pods"), controlplane.ByCode(403))
	if len(refused) > 20 { // the back-off doubles from 5 ms
		t.Errorf("%d refused creates:\n%v", len(refused), refused)
	}
}
