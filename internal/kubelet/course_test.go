package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

func TestCourse(t *testing.T) {
	begun := time.Unix(1e9, 0)
	ready := Course{Steps: []Step{{State: Ready}}}
	slow := Course{Steps: []Step{{State: Ready, After: time.Second}, {State: Failed, After: 2 * time.Second}}, GoneAfter: time.Second}
	in := func(s State) *corev1.Pod {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: s.Phase()}}
		if s == Ready {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		return pod
	}
	because := func(pod *corev1.Pod, reason string) *corev1.Pod {
		pod.Status.Reason = reason
		return pod
	}
	gated := func(containers, gate, ready corev1.ConditionStatus) *corev1.Pod {
		pod := in(Running)
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/registered"}}
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: containers}, {Type: "example.com/registered", Status: gate}, {Type: corev1.PodReady, Status: ready},
		}
		return pod
	}
	deleted := func(grace int64) *corev1.Pod {
		pod := in(Ready)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: begun}, &grace
		return pod
	}
	for _, tt := range []struct {
		name   string
		course Course
		pod    *corev1.Pod
		at     time.Duration // since the pod was first seen
		do     act
		wait   time.Duration
	}{
		{"no course", Course{}, in(Pending), 0, nothing, 0},
		{"ready at once", ready, in(Pending), 0, post, 0},
		{"ready already", ready, in(Ready), 0, nothing, 0},
		{"made unready by somebody", ready, in(Running), time.Hour, post, 0},
		{"ended by somebody", ready, in(Failed), 0, nothing, 0},
		{"before the first step", slow, in(Pending), 999 * time.Millisecond, nothing, time.Millisecond},
		{"at the first step", slow, in(Pending), time.Second, post, 2 * time.Second},
		{"between two steps", slow, in(Ready), 2 * time.Second, nothing, time.Second},
		{"at the last step", slow, in(Ready), 3 * time.Second, post, 0},
		{"being deleted", ready, deleted(30), 0, letGo, 0},
		{"needs time to end", slow, deleted(30), 0, nothing, time.Second},
		{"never ends", Course{GoneAfter: -1}, deleted(30), time.Hour, nothing, 0},
		{"waits for finalizers", ready, deleted(0), 0, nothing, 0},
		{"a reason that holds no more", Course{Steps: []Step{{State: Pending}}}, because(in(Pending), "InvalidAnnotation"), 0, post, 0},
		{"a reason that holds no more, before the first step", slow, because(in(Pending), "InvalidAnnotation"), 0, post, time.Second},
		{"a reason of somebody else's", ready, because(in(Ready), "R"), 0, nothing, 0},
		{"a reason of somebody else's, before the first step", slow, because(in(Pending), "R"), 0, nothing, time.Second},
		{"a reason of somebody else's, without a course", Course{}, because(in(Pending), "R"), 0, nothing, 0},
		{"containers before a readiness gate", ready, gated("False", "False", "False"), 0, post, 0},
		{"behind a readiness gate", ready, gated("True", "False", "False"), 0, nothing, 0},
		{"a readiness gate opens", ready, gated("True", "True", "False"), 0, post, 0},
		{"a readiness gate is open", ready, gated("True", "True", "True"), 0, nothing, 0},
		{"a readiness gate closes", ready, gated("True", "False", "True"), 0, post, 0},
		{"a reason that is missing", Course{Steps: []Step{{State: Pending, Reason: "R"}}}, in(Pending), 0, post, 0},
	} {
		now := begun.Add(tt.at)
		at := progress{}.advance(tt.course, false, begun).advance(tt.course, tt.pod.DeletionTimestamp != nil, now)
		if do, wait := at.nextAct(tt.pod, now); do != tt.do || wait != tt.wait {
			t.Errorf("%s: next(after %v) = %v, %v; want %v, %v", tt.name, tt.at, do, wait, tt.do, tt.wait)
		}
	}
}

func TestStepWithoutReasonKeepsTheReasonOfOthers(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: "R", Message: "m"}}
	at := progress{}.advance(Course{Steps: []Step{{State: Ready}}}, false, time.Unix(1e9, 0))
	fakeapi.Want(t, "step", at.currentStep(pod), Step{State: Ready, Reason: "R", Message: "m"})
}

func TestChangedCourseRestarts(t *testing.T) {
	begun := time.Unix(1e9, 0)
	ready, failed := Course{Steps: []Step{{State: Ready}}}, Course{Steps: []Step{{State: Failed, After: time.Second}}}
	at := progress{}.advance(ready, false, begun).advance(failed, false, begun.Add(time.Hour))
	fakeapi.Want(t, "steps of the new course at once", at.steps, 0)
	fakeapi.Want(t, "steps after a second", at.advance(failed, false, begun.Add(time.Hour+time.Second)).steps, 1)
}
