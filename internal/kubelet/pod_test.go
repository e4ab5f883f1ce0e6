package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"minikcm/internal/fakeapi"
)

func TestContainersFollowTheStateOfTheirPod(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1e9, 0)), metav1.NewTime(time.Unix(1e9+5, 0))
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: before}}
	for _, tt := range []struct {
		name    string
		was     corev1.ContainerState
		state   State
		ready   bool
		started bool
		want    corev1.ContainerState
	}{
		{"not started", corev1.ContainerState{}, Pending, false, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		{"started", corev1.ContainerState{}, Running, false, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}},
		{"ready, started before", running, Ready, true, true, running},
		{"ready but for a readiness gate", running, ContainersReady, true, true, running},
		{"failed", running, Failed, false, false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: before, FinishedAt: now}}},
		{"succeeded at once", corev1.ContainerState{}, Succeeded, false, false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}},
	} {
		pod := &corev1.Pod{
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: tt.was}}},
		}
		want := []corev1.ContainerStatus{{Name: "main", Image: "example.com/main:1", Ready: tt.ready, Started: &tt.started, State: tt.want}}
		fakeapi.WantEqual(t, tt.name, containerStatuses(pod, tt.state, now), want)
	}
}

// minReadySeconds begins with the transition.
func TestAConditionThatStaysKeepsItsTransitionTime(t *testing.T) {
	before := metav1.NewTime(time.Unix(1e9, 0))
	for _, tt := range []struct {
		name             string
		was              State
		state            State
		ready, container bool // the condition stays
	}{
		{"ready, and posted again", Ready, Ready, true, true},
		{"gets ready", Running, Ready, false, false},
		{"ready but for a readiness gate", Running, ContainersReady, true, false},
		{"has no conditions", Pending, Running, false, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		if tt.was != Pending {
			status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[tt.was == Ready]
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: status, LastTransitionTime: before}, {Type: corev1.ContainersReady, Status: status, LastTransitionTime: before},
			}
		}
		client := fake.NewClientset(pod)
		fakeapi.NoError(t, Post(t.Context(), client, pod, tt.state, "", ""))
		got := fakeapi.Must(client.CoreV1().Pods("shop").Get(t.Context(), "web", metav1.GetOptions{}))
		fakeapi.Want(t, tt.name+": conditions", len(got.Status.Conditions), 2)
		for _, c := range got.Status.Conditions {
			want := map[corev1.PodConditionType]bool{corev1.PodReady: tt.ready, corev1.ContainersReady: tt.container}[c.Type]
			if stays := c.LastTransitionTime.Equal(&before); stays != want || c.LastTransitionTime.IsZero() {
				t.Errorf("%s: %s is %s since %v, want its time kept: %v", tt.name, c.Type, c.Status, c.LastTransitionTime, want)
			}
		}
	}
}
