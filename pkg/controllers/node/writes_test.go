package node

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"minikcm/internal/fakeapi"
)

func TestUncachedHeartbeatPreventsStatusWrite(t *testing.T) {
	inCluster(t, 1, 1, nil, func(b *bench, live, _ []string) {
		b.term()
		b.renewFor(49*time.Second, live...)
		b.Freeze("nodes", true)
		b.post("dying0", "True") // the cache does not show the heartbeat
		b.pass(30 * time.Second)
		fakeapi.Want(t, "status writes", b.Count("update nodes/status"), 0)
		fakeapi.Want(t, "suppressed decisions", testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedAlive)), 1)
	})
}

func TestLabelsAndTaintsGoInOnePatch(t *testing.T) {
	for _, rejected := range []bool{false, true} { // a policy may protect labels
		node := aNode("node", "zone", "True", func(n *corev1.Node) {
			n.Labels["kubernetes.io/os"] = "linux"
			n.Spec.Unschedulable = true
		})
		inBubble(t, defaults(), []runtime.Object{node}, func(b *bench) {
			b.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
				hasLabel := strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), "beta")
				return rejected && hasLabel, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node", nil)
			})
			b.term()
			b.pass(time.Second)
			b.wantTaints("node", "unschedulable:NoSchedule")
			fakeapi.Want(t, "label of the zone", b.Node("node").Labels[corev1.LabelTopologyZone], "zone")
			fakeapi.Want(t, "beta label", b.Node("node").Labels["beta.kubernetes.io/os"] == "linux", !rejected)
			fakeapi.Want(t, "accepted patches", b.Count("patch nodes"), 1)
		})
	}
}

// After a conflict the next try is based on a live read, although the node cache shows neither version.
func TestConflictsNeedNoCache(t *testing.T) {
	inCluster(t, 1, 1, nil, func(b *bench, live, _ []string) {
		var patches atomic.Int32
		b.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if patches.Add(1) > 1 {
				return false, nil, nil
			}
			_, _, err := b.React(clienttesting.NewUpdateAction(corev1.SchemeGroupVersion.WithResource("nodes"), "", b.Node("dying0")))
			return err != nil, nil, err
		})
		b.Break(apierrors.NewConflict(corev1.Resource("nodes"), "dying0", nil), "update nodes/status")
		b.term()
		b.renewFor(49*time.Second, live...)
		b.Freeze("nodes", true)
		b.pass(1100 * time.Millisecond)
		if got := b.Count("update nodes/status"); got < 3 || got > 7 {
			t.Errorf("%d tries of the status in 100 ms, want 3 to 7", got)
		}
		b.Break(nil, "update nodes/status")
		b.pass(3 * time.Second)
		b.wantTaints("dying0", silentTaints...)
		fakeapi.Want(t, "patches", patches.Load(), 2)
	})
}

// The kubelet reports the node Ready between the status write and the patch of the taints. The conflict is retried:
// a relist of nodes may hide the change of the status from the handlers.
func TestReadyBeforeTaintsIsRetried(t *testing.T) {
	for _, shown := range []bool{false, true} {
		t.Run(fmt.Sprint("status write in the cache: ", shown), func(t *testing.T) {
			inCluster(t, 1, 1, nil, func(b *bench, live, _ []string) {
				var returned atomic.Bool
				inCache := func() string {
					node, _ := b.controller.nodes.Get(cache.ObjectName{Name: "dying0"})
					return node.ResourceVersion
				}
				b.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					if !returned.CompareAndSwap(false, true) {
						return false, nil, nil
					}
					node := b.Node("dying0")
					for shown && inCache() != node.ResourceVersion {
						goruntime.Gosched()
					}
					b.Freeze("nodes", true)
					setReady(node, corev1.ConditionTrue, time.Now())
					node.Spec.Unschedulable = true
					if _, _, err := b.React(clienttesting.NewUpdateAction(corev1.SchemeGroupVersion.WithResource("nodes"), "", node)); err != nil {
						return true, nil, err
					}
					return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "dying0", errors.New("changed"))
				})
				b.term()
				b.renewFor(49*time.Second, live...)
				b.Freeze("nodes", !shown)
				b.renewFor(11*time.Second, live...)
				b.renewFor(time.Minute, append(live, "dying0")...)
				b.wantTaints("dying0", "unschedulable:NoSchedule") // although the watch is frozen
			})
		})
	}
}

// The API server carries out the first status write and the first patch, and the responses are lost.
func TestLostResponses(t *testing.T) {
	inCluster(t, 1, 1, nil, func(b *bench, live, _ []string) {
		update, patch := b.LoseResponse("update", "nodes"), b.LoseResponse("patch", "nodes")
		b.term()
		b.renewFor(70*time.Second, live...)
		b.wantReady("Unknown", "dying0")
		b.wantTaints("dying0", silentTaints...)
		if got := b.Count("update nodes/status") + b.Count("patch nodes"); got > 4 || !update.Load() || !patch.Load() {
			t.Errorf("%d writes of the node; lost responses: update %t, patch %t", got, update.Load(), patch.Load())
		}
	})
}

func TestPodsThatAreNotReadyAreNotSynced(t *testing.T) {
	inCluster(t, 1, 0, nil, func(b *bench, _, _ []string) {
		b.term()
		for i := range 10 {
			pod := aPod(fmt.Sprint("new", i), "live0")
			pod.Status.Conditions = nil
			b.create(pod)
		}
		b.pass(time.Second)
		fakeapi.Want(t, "syncs for ten new pods", fakeapi.Syncs(t, b.Metrics, podQueue), 0)
	})
}

// A pod that is created later depends on the status that the node has by then.
func TestPodsMarkedWithTheirNode(t *testing.T) {
	ahead := func(_ *corev1.Node, pod *corev1.Pod) {
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(epoch.Add(time.Hour))
	}
	young := func(node *corev1.Node, _ *corev1.Pod) { node.CreationTimestamp = metav1.NewTime(epoch) }
	for _, tt := range []struct {
		name       string
		ready      corev1.ConditionStatus
		edit       func(*corev1.Node, *corev1.Pod) // may be nil
		wait       time.Duration
		want, late corev1.ConditionStatus
	}{
		{"the grace is not over", "True", nil, 49 * time.Second, "True", "True"},
		{"Ready turned Unknown", "True", nil, 51 * time.Second, "False", "False"},
		{"not Ready turned Unknown", "False", nil, 51 * time.Second, "False", "False"},
		{"not Ready says the kubelet: its own business", "False", nil, 49 * time.Second, "True", "False"},
		{"never posted", "", nil, 2 * time.Second, "True", "False"},
		{"has not posted yet", "", young, 2 * time.Second, "True", "True"},
		{"Unknown from before the term", "Unknown", nil, time.Second, "False", "False"},
		{"clock of the node ahead", "True", ahead, 51 * time.Second, "False", "False"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dead, pod, bare := aNode("dead", "", tt.ready), aPod("pod", "dead"), aPod("bare", "dead")
			bare.Status.Conditions = nil
			if tt.edit != nil {
				tt.edit(dead, pod)
			}
			objects := []runtime.Object{dead, pod, aPod("other", "live"), bare, aNode("live", "", "True"), aLease("live", epoch)}
			inBubble(t, defaults(), objects, func(b *bench) {
				b.term()
				b.renewFor(tt.wait, "live")
				pod := b.Pod("pod")
				b.wantPods(tt.want, "pod")
				b.wantPods("True", "other")
				if tt.want == "False" {
					want := aPod("pod", "dead").Status
					want.Conditions[0].Status = corev1.ConditionFalse
					want.Conditions[0].LastTransitionTime = pod.Status.Conditions[0].LastTransitionTime
					fakeapi.WantEqual(t, "more than Ready and its time was changed", pod.Status, want)
					if pod.Status.Conditions[0].LastTransitionTime.IsZero() {
						t.Error("no transition time")
					}
					fakeapi.Want(t, "pod writes", b.Count("patch pods/status"), 1)
					if e := fakeapi.NewEvents(b.events); !slices.Contains(e, "Warning NodeNotReady Node is not ready") {
						t.Errorf("events = %q", e)
					}
				}
				b.create(aPod("late", "dead"))
				b.pass(500 * time.Millisecond)
				b.wantPods(tt.late, "late")
			})
		})
	}
}

func TestPodWriteIsRetriedUntilItSucceeds(t *testing.T) {
	for _, anotherTerm := range []bool{false, true} {
		t.Run(fmt.Sprint("another term: ", anotherTerm), func(t *testing.T) {
			inCluster(t, 1, 1, []runtime.Object{aPod("pod", "dying0")}, func(b *bench, live, _ []string) {
				b.Break(apierrors.NewForbidden(corev1.Resource("pods"), "pod", nil), "patch pods/status")
				b.term()
				b.renewFor(5*time.Minute, live...)
				if got := b.Count("patch pods/status"); got < 5 {
					t.Errorf("%d tries in 4 minutes", got)
				}
				if e := fakeapi.NewEvents(b.events); slices.Contains(e, "Warning NodeNotReady Node is not ready") {
					t.Error("an event tells of what did not happen")
				}
				b.Break(nil, "patch pods/status")
				if anotherTerm {
					b.endTerm()
					b.term()
				}
				b.renewFor(70*time.Second, live...)
				b.wantPods("False", "pod")
				before := b.Count("patch pods/status")
				b.renewFor(5*time.Minute, live...)
				fakeapi.Want(t, "pod writes after the first success", b.Count("patch pods/status"), before)
			})
		})
	}
}

// Another client sets Ready to True every 100 ms, without a heartbeat.
func TestUnknownIsRepeatedOncePerMonitorPeriod(t *testing.T) {
	inCluster(t, 1, 1, nil, func(b *bench, live, dying []string) {
		b.term()
		b.renewFor(51*time.Second, live...)
		for i := range 200 {
			if i%100 == 0 {
				b.renew(live...)
			}
			b.edit(dying[0], func(n *corev1.Node) { setReady(n, "True", n.CreationTimestamp.Time) })
			b.pass(100 * time.Millisecond)
		}
		fakeapi.Want(t, "status writes", b.Count("update nodes/status"), 1+4)
	})
}

func TestKubeletIsNotContradicted(t *testing.T) {
	inCluster(t, 1, 1, []runtime.Object{aPod("pod", "dying0")}, func(b *bench, live, _ []string) {
		b.term()
		b.renewFor(51*time.Second, live...)
		b.wantPods("False", "pod")
		pod := b.Pod("pod")
		pod.Status.Conditions[0].Status = "True" // the kubelet is back and has not posted the node status yet
		fakeapi.Must(b.CoreV1().Pods("default").UpdateStatus(b.T.Context(), pod, metav1.UpdateOptions{}))
		b.renewFor(time.Minute, live...)
		b.edit("dying0", func(n *corev1.Node) { n.Labels["x"] = "y" })
		b.wantPods("True", "pod")
	})
}
