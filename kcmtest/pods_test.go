package kcmtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/kubelet"
)

func TestAnnotationSteersAPod(t *testing.T) {
	steps := func(s ...kubelet.Step) kubelet.Course { return kubelet.Course{Steps: s} }
	invalid := func(message string) kubelet.Course {
		return steps(kubelet.Step{State: kubelet.Pending, Reason: "InvalidAnnotation", Message: "annotation kcmtest/pod: " + message})
	}
	for _, tt := range []struct {
		value string
		want  kubelet.Course
	}{
		{"ready", steps(kubelet.Step{State: kubelet.Ready})},
		{"running", steps(kubelet.Step{State: kubelet.Running})},
		{"pending", steps(kubelet.Step{State: kubelet.Pending})},
		{"succeeded after 1s", steps(kubelet.Step{State: kubelet.Succeeded, After: time.Second})},
		{" ready  after 500ms ,failed after 2s", steps(kubelet.Step{State: kubelet.Ready, After: 500 * time.Millisecond}, kubelet.Step{State: kubelet.Failed, After: 2 * time.Second})},
		{"gone after 5s", kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Ready}}, GoneAfter: 5 * time.Second}},
		{"running, never gone", kubelet.Course{Steps: []kubelet.Step{{State: kubelet.Running}}, GoneAfter: -1}},
		{"rady", invalid(`"rady" is none of failed, pending, ready, running, succeeded, gone after <duration>, never gone`)},
		{"gone", invalid(`"gone" is none of failed, pending, ready, running, succeeded, gone after <duration>, never gone`)},
		{"ready after a while", invalid(`"a while" is no duration, such as 500ms or 2s`)},
		{"ready after -1s", invalid(`"-1s" is no duration, such as 500ms or 2s`)},
		{"", invalid(`"" is none of failed, pending, ready, running, succeeded, gone after <duration>, never gone`)},
	} {
		t.Run(tt.value, func(t *testing.T) {
			got := course(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{PodAnnotation: tt.value}}})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("course (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(steps(kubelet.Step{State: kubelet.Ready}), course(&corev1.Pod{})); diff != "" {
		t.Errorf("course without the annotation (-want +got):\n%s", diff)
	}
}
