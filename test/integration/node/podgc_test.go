package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/controllers/podgc"
	"minikcm/test/controlplane"
)

const finalizer = "test.k8s.io/finalizer"

func finalized(p *corev1.Pod) { p.Finalizers = []string{finalizer} }

// checkDisruption compares the condition DisruptionTarget of a pod, except for the time.
func checkDisruption(t *testing.T, pod *corev1.Pod, want *corev1.PodCondition) {
	t.Helper()
	got := controlplane.Disruption(pod)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(corev1.PodCondition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("condition DisruptionTarget of %s (-want +got):\n%s", pod.Name, diff)
	}
	if got != nil && got.LastTransitionTime.IsZero() {
		t.Errorf("condition DisruptionTarget of %s has no transition time", pod.Name)
	}
}

// Upstream's test/integration/podgc: TestPodGcOrphanedPodsWithFinalizer, TestTerminatingOnOutOfServiceNode,
// TestPodGcForPodsWithDuplicatedFieldKeys.
func TestPodGC(t *testing.T) {
	w := newWorld(t)
	w.start(defaults(), podgc.Name)
	deleted, outOfService := w.node("deleted"), w.node("out-of-service")
	terminating := func(name string) {
		must(t, w.client.CoreV1().Pods(w.ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(300))}))
	}
	orphaned := &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 1,
		Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
	}
	env := func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "XYZ", Value: "1"}, {Name: "XYZ", Value: "2"}}
	}
	ports := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 93, HostPort: 9376}, {ContainerPort: 93, HostPort: 9377}}
	}
	cases := []struct {
		name, node  string
		phase, want corev1.PodPhase // want "": the pod is gone
		condition   *corev1.PodCondition
		edits       []func(*corev1.Pod)
		before      func(name string)
	}{
		{"pending", deleted, corev1.PodPending, corev1.PodFailed, orphaned, []func(*corev1.Pod){finalized}, nil},
		{"succeeded", deleted, corev1.PodSucceeded, corev1.PodSucceeded, nil, []func(*corev1.Pod){finalized}, nil},
		{"failed", deleted, corev1.PodFailed, corev1.PodFailed, nil, []func(*corev1.Pod){finalized}, nil},
		{"env-key-twice", deleted, corev1.PodPending, corev1.PodFailed, orphaned, []func(*corev1.Pod){finalized, env}, nil},
		{"port-key-twice", deleted, corev1.PodPending, corev1.PodFailed, orphaned, []func(*corev1.Pod){finalized, ports}, nil},
		{"held", outOfService, corev1.PodPending, corev1.PodFailed, nil, []func(*corev1.Pod){finalized}, terminating},
		{"not-held", outOfService, corev1.PodPending, "", nil, nil, terminating},
		{"unscheduled", "", corev1.PodPending, corev1.PodFailed, nil, []func(*corev1.Pod){finalized}, terminating},
	}
	for _, tt := range cases {
		w.pod(tt.name, tt.node, tt.edits...)
		controlplane.SetPodPhase(t, w.client, w.ns, tt.name, tt.phase)
		if tt.before != nil {
			tt.before(tt.name)
		}
	}
	must(t, w.client.CoreV1().Nodes().Delete(t.Context(), deleted, metav1.DeleteOptions{}))
	w.setTaints(outOfService, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
	for _, tt := range cases {
		if tt.want == "" {
			w.eventually(w.ns, tt.name, isGone)
			continue
		}
		pod := w.eventually(w.ns, tt.name, isTerminating(tt.want))
		checkDisruption(t, pod, tt.condition)
		want := controlplane.Pod(w.ns, tt.name, nil, tt.edits...).Spec.Containers[0]
		if got := pod.Spec.Containers[0]; !cmp.Equal(got.Env, want.Env) || len(got.Ports) != len(want.Ports) {
			t.Errorf("container of %s changed to %v, want %v", tt.name, got, want)
		}
	}
}
