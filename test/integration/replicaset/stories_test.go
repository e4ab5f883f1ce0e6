package replicaset

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/test/controlplane"
)

func TestStories(t *testing.T) {
	start(t, controllerConfig(), controllerConfig())
	for name, story := range map[string]func(*testing.T){"Quota": testQuota, "TemplateIsKept": testTemplateIsKept} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t)
		})
	}
}

func failure(s appsv1.ReplicaSetStatus) *appsv1.ReplicaSetCondition {
	for i, c := range s.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return &s.Conditions[i]
		}
	}
	return nil
}

func testQuota(t *testing.T) {
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

// testTemplateIsKept: the cache holds no template of a ReplicaSet with 0 replicas.
func testTemplateIsKept(t *testing.T) {
	n := newNamespace(t)
	rs := n.apply(0)
	if got := n.settled(rs.Name); !equality.Semantic.DeepEqual(got.Spec, rs.Spec) {
		t.Errorf("spec after the status was written is %+v, want %+v", got.Spec, rs.Spec)
	}
	n.scale(rs.Name, 2)
	n.settled(rs.Name)
	n.scale(rs.Name, 0)
	got := n.settled(rs.Name)
	if !equality.Semantic.DeepEqual(got.Spec.Template, rs.Spec.Template) {
		t.Errorf("template is %+v, want %+v", got.Spec.Template, rs.Spec.Template)
	}
	n.scale(rs.Name, 1)
	n.settled(rs.Name)
	pods := n.pods("")
	if len(pods) == 0 || pods[len(pods)-1].Spec.Containers[0].Image != rs.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("pods are %+v, want one made from the template", pods)
	}
}
