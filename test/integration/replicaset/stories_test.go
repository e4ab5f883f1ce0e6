package replicaset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/test/controlplane"
)

func TestStories(t *testing.T) {
	adoptions := prepareAdoptions(t)
	start(t, defaults())
	for _, story := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Adoption", func(t *testing.T) { checkAdoptions(t, adoptions) }},
		{"TerminatingReplicas", testTerminatingReplicas},
		{"Quota", testQuota},
		{"Recreated", testRecreated},
		{"RelatedPods", testRelatedPods},
	} {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			story.run(t)
		})
	}
}

func onNode(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.NodeName = "nowhere" }

// setReady makes a pod Ready since a time.
func setReady(t testing.TB, n *namespace, name string, since time.Time) {
	t.Helper()
	controlplane.SetPodStatus(t, n.client, n.name, name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	})
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
	if err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard("2"), Used: hard("0")}
	if _, err := quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	n.apply(3)
	n.status("rs", func(s appsv1.ReplicaSetStatus) bool {
		f := failure(s)
		return s.Replicas == 2 && f != nil && f.Reason == "FailedCreate" && strings.Contains(f.Message, "exceeded quota")
	})
	n.scale("rs", 2)
	n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 2 && failure(s) == nil })
	n.scale("rs", 3)
	n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return failure(s) != nil })
	n.eventually(func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "few", metav1.GetOptions{})
		if err == nil {
			quota.Status.Hard = hard("3")
			_, err = quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		}
		return err
	})
	if s := n.settled("rs").Status; failure(s) != nil {
		n.status("rs", func(s appsv1.ReplicaSetStatus) bool { return failure(s) == nil })
	}
	refused := cluster.AuditLog(t, controlplane.Completed, controlplane.ByNamespace(n.name), controlplane.ByVerb("create"),
		controlplane.ByResource("pods"), controlplane.ByCode(403))
	if len(refused) > 20 { // the back-off doubles from 5 ms
		t.Errorf("%d refused creates:\n%v", len(refused), refused)
	}
}

func testRecreated(t *testing.T) {
	n := newNamespace(t)
	orphan := metav1.DeletePropagationBackground
	for range 5 {
		n.apply(3)
		if err := n.client.AppsV1().ReplicaSets(n.name).Delete(t.Context(), "rs", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
			t.Fatal(err)
		}
	}
	rs := n.apply(3)
	n.settled("rs")
	if got := n.active(rs); len(got) != 3 {
		t.Errorf("active pods %v, want 3", got)
	}
	if _, err := n.client.CoreV1().Pods(n.name).Get(t.Context(), "rs", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod without suffix: %v", err)
	}
}

// testRelatedPods: of the pods of a rollout, a pod that shares its node with a pod of the older ReplicaSet is deleted
// first.
func testRelatedPods(t *testing.T) {
	n := newNamespace(t)
	rollout := func(rs *appsv1.ReplicaSet) {
		rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: types.UID(n.name), Controller: new(true)}}
	}
	on := func(node string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = node } }
	n.create(controlplane.Pod(n.name, "old", map[string]string{"app": "old"}, on("node-3")))
	n.applyNamed("old", 1, rollout)
	n.settled("old")
	for i := range 6 {
		n.create(controlplane.Pod(n.name, fmt.Sprintf("new-%d", i), map[string]string{"app": "new"}, on(fmt.Sprintf("node-%d", i))))
	}
	rs := n.applyNamed("new", 6, rollout)
	n.settled("new")
	// The first victim if nodes are not compared.
	controlplane.SetPodStatus(t, n.client, n.name, "new-0", func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 1}}
	})
	n.scale("new", 5)
	n.settled("new")
	if left := n.active(rs); slices.Contains(left, "new-3") {
		t.Errorf("left are %v, want all but new-3", left)
	}
}

func testTerminatingReplicas(t *testing.T) {
	n := newNamespace(t)
	rs := n.apply(5, onNode)
	n.settled("rs")
	terminating := func(want int32) {
		t.Helper()
		n.status("rs", func(s appsv1.ReplicaSetStatus) bool {
			return s.Replicas == 5 && s.TerminatingReplicas != nil && *s.TerminatingReplicas == want
		})
	}
	terminating(0)
	names := n.active(rs)
	n.delete(names[0])
	n.delete(names[1])
	terminating(2)
	n.delete(names[0], 0)
	terminating(1)
	n.settled("rs")
}
