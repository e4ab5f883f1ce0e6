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
	} {
		t.Run(tt.name, func(t *testing.T) {
			dead := aNode("dead", "", tt.ready)
			bare := aPod("bare", "dead")
			bare.Status.Conditions = nil
			objects := []runtime.Object{dead, aPod("pod", "dead"), aPod("other", "live"), bare, aNode("live", "", "True"), aLease("live", epoch)}
			inBubble(t, defaults(), objects, func(b *bench) {
				b.term()
				b.renewFor(tt.wait, "live")
				pod := b.Pod("pod")
				if got := podReady(pod); got != tt.want {
					t.Fatalf("Ready = %s, want %s", got, tt.want)
				}
				if got := podReady(b.Pod("other")); got != "True" {
					t.Errorf("Ready of a pod elsewhere = %s", got)
				}
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

func TestEveryPodIsWrittenOnce(t *testing.T) {
	for _, workers := range []int{8, 1} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			objects := []runtime.Object{aNode("live", "", "True"), aLease("live", epoch)}
			for n := range 10 {
				name := fmt.Sprint("node", n)
				objects = append(objects, aNode(name, "", "True"))
				for p := range 20 {
					objects = append(objects, aPod(fmt.Sprint(name, "-", p), name))
				}
			}
			cfg := defaults()
			cfg.Workers, cfg.PodWorkers = workers, workers
			inBubble(t, cfg, objects, func(b *bench) {
				b.term()
				b.renewFor(52*time.Second, "live")
				if got := b.Count("patch pods/status"); got != 200 {
					t.Errorf("%d pod writes, want 200", got)
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
		if got := podReady(b.Pod("pod")); got != "False" {
			t.Errorf("Ready = %s", got)
		}
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
		pod.Status.Conditions[0].Status = "True" // the kubelet is back, its node status comes later
		if _, err := b.CoreV1().Pods("default").UpdateStatus(b.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renewFor(time.Minute, live...)
		b.edit("dying0", func(n *corev1.Node) { n.Labels["x"] = "y" })
		if got := podReady(b.Pod("pod")); got != "True" {
			t.Errorf("Ready = %s: set back against the kubelet", got)
		}
	})
}

func TestDowntimeOf(t *testing.T) {
	since := epoch.Add(-time.Hour)
	for _, tt := range []struct {
		name   string
		ready  corev1.ConditionStatus
		reason string
		want   corev1.ConditionStatus
		isDown bool
	}{
		{"Ready", "True", "KubeletReady", "", false},
		{"no condition: its kubelet has not come up yet", "", "", "", false},
		{"its kubelet calls it not ready", "False", "KubeletNotReady", "False", true},
		{"it does not answer", "Unknown", reasonUnknown, "Unknown", true},
		{"it has never posted anything", "Unknown", reasonNeverUpdated, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := aNode("node", "", tt.ready)
			want := downtime{}
			if c := condition(node, corev1.NodeReady); c != nil {
				c.Reason, c.LastTransitionTime = tt.reason, metav1.NewTime(since)
			}
			if tt.isDown {
				want = downtime{node: node.UID, ready: tt.want, since: since}
			}
			if got, isDown := downtimeOf(node); got != want || isDown != tt.isDown {
				t.Errorf("downtimeOf = %+v, %v; want %+v, %v", got, isDown, want, tt.isDown)
			}
		})
	}
}

func TestMarkedOncePerDowntime(t *testing.T) {
	m := newMarks()
	unknown := downtime{node: "n", ready: corev1.ConditionUnknown, since: epoch}
	again := downtime{node: "n", ready: corev1.ConditionUnknown, since: epoch.Add(time.Hour)}
	for _, tt := range []struct {
		name string
		do   func()
		want bool
	}{
		{"before", func() {}, false},
		{"the node turns Unknown", func() { m.begin("node", unknown) }, true},
		{"marked", func() { m.done("node", "pod") }, false},
		{"the same downtime, seen again", func() { m.begin("node", unknown) }, false},
		{"another downtime", func() { m.begin("node", again) }, true},
		{"the node is well", func() { m.end("node") }, false},
		{"an earlier node of the name", func() { m.begin("node", downtime{"other", corev1.ConditionUnknown, epoch}) }, false},
		{"and this one", func() { m.begin("node", unknown) }, true},
	} {
		tt.do()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n"}}
		if got := m.due(node, "pod", false); got != tt.want {
			t.Errorf("%s: due = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// While its kubelet is alive and calls the node not ready, what it says of a pod stands.
func TestPodStatusIsNoReasonToMark(t *testing.T) {
	inBubble(t, defaults(), []runtime.Object{aNode("node", "", "False"), aNode("live", "", "True"), aPod("pod", "node")}, func(b *bench) {
		b.term()
		pod := b.Pod("pod")
		pod.Status.Conditions[0].Message = "still ready"
		if _, err := b.CoreV1().Pods("default").UpdateStatus(b.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.pass(time.Second)
		if got := podReady(b.Pod("pod")); got != "True" {
			t.Errorf("Ready = %s", got)
		}
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
				if got := podReady(b.Pod("late")); got != tt.want {
					t.Errorf("Ready of a pod bound just now = %s, want %s", got, tt.want)
				}
				early := corev1.ConditionStatus("True")
				if tt.ready == "Unknown" {
					early = "False"
				}
				if got := podReady(b.Pod("early")); got != early {
					t.Errorf("Ready of a pod from before the term = %s, want %s", got, early)
				}
			})
		})
	}
}
