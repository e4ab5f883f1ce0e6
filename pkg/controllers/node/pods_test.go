package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
)

func TestPodsThatAreNotReadyAreNotSynced(t *testing.T) {
	objects, _, _ := cluster(1, 0)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		for i := range 10 {
			pod := aPod(fmt.Sprint("new", i), "live0")
			pod.Status.Conditions = nil
			b.create(pod)
		}
		b.pass(time.Second)
		if n := fakeapi.Syncs(t, b.registry, podQueue); n != 0 {
			t.Errorf("%d syncs for ten new pods, want none", n)
		}
	})
}

func TestPodsMarkedWithTheirNode(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ready corev1.ConditionStatus
		wait  time.Duration
		want  corev1.ConditionStatus
	}{
		{"the grace is not over", "True", 49 * time.Second, "True"},
		{"Ready turned Unknown", "True", 51 * time.Second, "False"},
		{"not Ready turned Unknown", "False", 51 * time.Second, "False"},
		{"not Ready says the kubelet: its own business", "False", 49 * time.Second, "True"},
		{"never posted", "", 2 * time.Second, "True"},
		{"Unknown from before the term", "Unknown", time.Second, "False"},
		{"clock of the node ahead", "True", 51 * time.Second, "False"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dead, pod := aNode("dead", "", tt.ready), aPod("pod", "dead")
			if tt.name == "clock of the node ahead" {
				pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(epoch.Add(time.Hour))
			}
			bare := aPod("bare", "dead")
			bare.Status.Conditions = nil
			objects := []runtime.Object{dead, pod, aPod("other", "live"), bare, aNode("live", "", "True"), aLease("live", epoch)}
			inBubble(t, defaults(), objects, func(b *bench) {
				b.term()
				b.renewFor(tt.wait, "live")
				pod := b.Pod("pod")
				if got := podReady(pod); got != tt.want {
					t.Fatalf("Ready = %s, want %s", got, tt.want)
				}
				b.wantPods("True", "other")
				if tt.want == "True" {
					return
				}
				want := aPod("pod", "dead").Status
				want.Conditions[0].Status = corev1.ConditionFalse
				want.Conditions[0].LastTransitionTime = pod.Status.Conditions[0].LastTransitionTime
				if diff := cmp.Diff(want, pod.Status); diff != "" {
					t.Errorf("more than Ready and its time was changed:\n%s", diff)
				}
				if pod.Status.Conditions[0].LastTransitionTime.IsZero() {
					t.Error("no transition time")
				}
				if got := b.Count("patch pods/status"); got != 1 {
					t.Errorf("%d pod writes, want 1\n%v", got, b.Requests(""))
				}
				if e := b.drainEvents(); !slices.Contains(e, "Warning NodeNotReady Node is not ready") {
					t.Errorf("events = %q", e)
				}
			})
		})
	}
}

func TestPodWriteIsRetriedUntilItSucceeds(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), append(objects, aPod("pod", "dying0")), func(b *bench) {
		b.Break(apierrors.NewForbidden(corev1.Resource("pods"), "pod", nil), "patch pods/status")
		b.term()
		b.renewFor(5*time.Minute, live...)
		if got := b.Count("patch pods/status"); got < 5 {
			t.Errorf("%d tries in 4 minutes", got)
		}
		if e := b.drainEvents(); slices.Contains(e, "Warning NodeNotReady Node is not ready") {
			t.Error("an event tells of what did not happen")
		}
		b.Break(nil, "patch pods/status")
		b.renewFor(70*time.Second, live...)
		b.wantPods("False", "pod")
		before := b.Count("patch pods/status")
		b.renewFor(5*time.Minute, live...)
		if got := b.Count("patch pods/status"); got != before {
			t.Errorf("%d more writes after it succeeded", got-before)
		}
	})
}

func TestKubeletIsNotContradicted(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), append(objects, aPod("pod", "dying0")), func(b *bench) {
		b.term()
		b.renewFor(51*time.Second, live...)
		pod := b.Pod("pod")
		if podReady(pod) != "False" {
			t.Fatal("not marked")
		}
		pod.Status.Conditions[0].Status = "True" // the kubelet is back and has not posted the node status yet
		if _, err := b.CoreV1().Pods("default").UpdateStatus(b.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renewFor(time.Minute, live...)
		b.edit("dying0", func(n *corev1.Node) { n.Labels["x"] = "y" })
		b.wantPods("True", "pod")
	})
}

func TestLatePods(t *testing.T) {
	for _, tt := range []struct {
		ready, want corev1.ConditionStatus
	}{{"True", "True"}, {"False", "False"}, {"Unknown", "False"}, {"", "True"}} {
		t.Run("node Ready "+string(tt.ready), func(t *testing.T) {
			node := aNode("node", "", tt.ready, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(epoch) })
			inBubble(t, defaults(), []runtime.Object{node, aNode("live", "", "True"), aPod("early", "node")}, func(b *bench) {
				b.term()
				b.create(aPod("late", "node"))
				b.pass(time.Second)
				b.wantPods(tt.want, "late")
				early := corev1.ConditionStatus("True")
				if tt.ready == "Unknown" {
					early = "False"
				}
				b.wantPods(early, "early")
			})
		})
	}
}
