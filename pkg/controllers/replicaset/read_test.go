package replicaset

import (
	"errors"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
)

// TestAFirstWriteIsReadLiveOnlyUntilTheCachesHaveReachedTheBaseline: the first write creates a pod or writes the
// status. A late cache does not show the pod, which is ready, or the readiness that an earlier leader wrote.
func TestAFirstWriteIsReadLiveOnlyUntilTheCachesHaveReachedTheBaseline(t *testing.T) {
	ready := func(rs *appsv1.ReplicaSet) { rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = 1, 1 }
	for _, tt := range []struct {
		name string
		pods []*caches.Pod
		at   controller.Versions
		want []string
	}{
		{"create, behind the baseline", nil, versions("99", "100"), []string{"get replicasets", "list pods"}},
		{"create, past the baseline", nil, versions("100", "100"), []string{"create pods", "update replicasets/status"}},
		{"status, behind the baseline", []*caches.Pod{newPod("a")}, versions("99", "100"), []string{"get replicasets", "list pods"}},
		{"status, past the baseline", []*caches.Pod{newPod("a")}, versions("100", "100"), []string{"update replicasets/status"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, newSet(1, statusOfSize(1), ready), tt.pods...)
			b.baselineAt(t, "100", "100")
			b.versions = tt.at
			b.on("list pods", func(int, clienttesting.Action) (runtime.Object, error) {
				pod := *apiPod(newPod("a"))
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: []corev1.Pod{pod}}, nil
			})
			if _, err := b.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.wants(t, tt.want...)
		})
	}
}

func TestTheBaselineIsToldByPodsAndReplicaSets(t *testing.T) {
	b := newBench(t, newSet(1))
	b.on("list pods", func(call int, _ clienttesting.Action) (runtime.Object, error) {
		if call == 1 {
			return nil, errors.New("no answer")
		}
		return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
	})
	b.on("list replicasets", func(int, clienttesting.Action) (runtime.Object, error) {
		return &appsv1.ReplicaSetList{ListMeta: metav1.ListMeta{ResourceVersion: "8"}}, nil
	})
	if got, err := b.latestVersions(t.Context()); err == nil {
		t.Errorf("told %v although pods were not", got)
	}
	if got, err := b.latestVersions(t.Context()); err != nil || !maps.Equal(got, versions("7", "8")) {
		t.Errorf("told %v with error %v, want pods at 7 and ReplicaSets at 8", got, err)
	}
}

func TestAReadIsMadeInPages(t *testing.T) {
	b := newBench(t, newSet(1))
	var asked []string
	b.on("list pods", func(call int, a clienttesting.Action) (runtime.Object, error) {
		opts := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, opts.Continue)
		if opts.Limit == 0 {
			t.Error("a list without a limit")
		}
		page := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "50"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}}}
		if call < 3 {
			page.Continue = "more"
		}
		return page, nil
	})
	pods, version, err := b.deps.Pods.Read(t.Context(), b.client, "default", metav1.ListOptions{Continue: "nonsense"})
	if err != nil || len(pods) != 3 || version != "50" || len(asked) != 3 || asked[0] != "" || asked[1] != "more" {
		t.Errorf("%d pods of version %q, asked with tokens %q, error %v; want 3 pods of version 50 in three pages", len(pods), version, asked, err)
	}
}
