package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"minikcm/internal/fakeapi"
)

// epoch is the start time of every bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// cluster returns live and dying nodes with Leases in a single zone.
func cluster(live, dying int) (objects []runtime.Object, liveNames, dyingNames []string) {
	for i := range live + dying {
		name := fmt.Sprint("live", i)
		if i >= live {
			name = fmt.Sprint("dying", i-live)
			dyingNames = append(dyingNames, name)
		} else {
			liveNames = append(liveNames, name)
		}
		objects = append(objects, aNode(name, "zone", corev1.ConditionTrue), aLease(name, epoch))
	}
	return objects, liveNames, dyingNames
}

// inCluster runs a test in a zone of live and dying nodes, beside other objects.
func inCluster(t *testing.T, live, dying int, others []runtime.Object, run func(b *bench, live, dying []string)) {
	t.Helper()
	objects, liveNames, dyingNames := cluster(live, dying)
	inBubble(t, defaults(), append(objects, others...), func(b *bench) { run(b, liveNames, dyingNames) })
}

func (b *bench) tainted(taint string, names []string) int {
	b.T.Helper()
	n := 0
	for _, name := range names {
		if slices.Contains(taintsOf(b.Node(name)), taint) {
			n++
		}
	}
	return n
}

// taintedAt returns the time of a NoExecute taint, zero without the taint.
func (b *bench) taintedAt(name, key string) time.Time {
	b.T.Helper()
	for _, taint := range b.Node(name).Spec.Taints {
		if taint.Key == key && taint.Effect == noExec {
			return taint.TimeAdded.Time
		}
	}
	return time.Time{}
}

func TestSilentNode(t *testing.T) {
	inCluster(t, 1, 1, []runtime.Object{aPod("pod", "dying0")}, func(b *bench, live, dying []string) {
		b.term()
		b.renewFor(50*time.Second, live...)
		b.wantReady(corev1.ConditionTrue, "dying0")
		b.pass(500 * time.Millisecond)
		b.wantReady(corev1.ConditionUnknown, "dying0")
		b.wantTaints("dying0", silentTaints...)
		b.wantPods(corev1.ConditionFalse, "pod")
		b.wantReady(corev1.ConditionTrue, live...)
		fakeapi.Want(t, "writes of the status and of all taints", b.Count("update nodes/status")+b.Count("patch nodes"), 2)
		b.post(dying[0], corev1.ConditionTrue)
		b.wantTaints("dying0")
		fakeapi.Want(t, "patches", b.Count("patch nodes"), 2)
	})
}

// The lease cases of upstream, checked through the API.
func TestLeaseCases(t *testing.T) {
	young := func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(epoch) }
	for _, tt := range []struct {
		name  string
		node  *corev1.Node
		lease bool
		play  func(b *bench)
		want  corev1.ConditionStatus
		why   string // reason of Ready
	}{
		{"young, no status, no lease", aNode("node", "", "", young), false, func(b *bench) { b.pass(59 * time.Second) }, "", ""},
		{"young, no status, lease", aNode("node", "", "", young), true, func(b *bench) { b.pass(59 * time.Second) }, "", ""},
		{"old, no status, no lease", aNode("node", "", ""), false, func(*bench) {}, "Unknown", "NodeStatusNeverUpdated"},
		{"old, no status, lease renewed", aNode("node", "", ""), true, func(b *bench) { b.renewFor(10*time.Minute, "node") }, "", ""},
		{"old, no status, lease expired", aNode("node", "", ""), true, func(b *bench) { b.pass(61 * time.Second) }, "Unknown", "NodeStatusNeverUpdated"},
		{"status silent, lease renewed", aNode("node", "", "True"), true, func(b *bench) { b.renewFor(10*time.Minute, "node") }, "True", "Kubelet"},
		{"status posted, lease expired", aNode("node", "", "True"), true, func(b *bench) {
			b.pass(30 * time.Second)
			b.post("node", "True")
			b.pass(30 * time.Second)
		}, "True", "Kubelet"},
		{"status silent, lease expired", aNode("node", "", "True"), true, func(b *bench) { b.pass(51 * time.Second) }, "Unknown", "NodeStatusUnknown"},
		{"lease expired in the cache, renewed in truth", aNode("node", "", "True"), true, func(b *bench) {
			b.Freeze("leases", true)
			b.pass(10 * time.Second)
			b.renew("node")
			b.pass(41 * time.Second)
		}, "True", "Kubelet"},
		{"lease renewed once while the watch is frozen, then silent", aNode("node", "", "True"), true, func(b *bench) {
			b.Freeze("leases", true)
			b.pass(40 * time.Second)
			b.renew("node")
			b.pass(61 * time.Second)
		}, "Unknown", "NodeStatusUnknown"},
		{"an earlier heartbeat posted: the clock of the kubelet was set back", aNode("node", "", "True"), false, func(b *bench) {
			b.pass(30 * time.Second)
			b.edit("node", func(n *corev1.Node) { setReady(n, "True", epoch.AddDate(-2, 0, 0)) })
			b.pass(49 * time.Second)
		}, "True", "Kubelet"},
		{"a status without a heartbeat time", aNode("node", "", "True", func(n *corev1.Node) {
			readyCondition(n).LastHeartbeatTime = metav1.Time{}
		}), false, func(b *bench) { b.pass(49 * time.Second) }, "True", "Kubelet"},
		{"another status with the same heartbeat", aNode("node", "", "True"), false, func(b *bench) {
			b.pass(30 * time.Second)
			b.edit("node", func(n *corev1.Node) { setReady(n, "False", n.CreationTimestamp.Time) })
			b.pass(21 * time.Second)
		}, "Unknown", "NodeStatusUnknown"},
		{"two checks are at least a monitor period apart", aNode("node", "", "True"), false, func(b *bench) {
			b.endTerm()
			b.controller.cfg.MonitorPeriod = 2 * time.Minute
			b.term()
			b.pass(2 * time.Minute)
			b.wantReady("True", "node")
			b.pass(time.Second)
		}, "Unknown", "NodeStatusUnknown"},
		{"Ready taken away by another client: 60 s from the last sign of life", aNode("node", "", "True"), true, func(b *bench) {
			b.edit("node", func(n *corev1.Node) { n.Status.Conditions = nil })
			b.pass(59 * time.Second)
			b.wantReady("", "node")
			b.pass(2 * time.Second)
		}, "Unknown", "NodeStatusNeverUpdated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := []runtime.Object{tt.node}
			if tt.lease {
				objects = append(objects, aLease("node", epoch))
			}
			inBubble(t, defaults(), objects, func(b *bench) {
				b.term()
				tt.play(b)
				b.pass(0)
				node := b.Node("node")
				reason := ""
				if c := readyCondition(node); c != nil {
					reason = c.Reason
				}
				if got := readiness(node); got != tt.want || reason != tt.why {
					t.Errorf("Ready = %q, %q; want %q, %q", got, reason, tt.want, tt.why)
				}
				fakeapi.Want(t, "a status was written", b.Count("update nodes/status") == 1, tt.want == "Unknown")
			})
		})
	}
}

func TestNoExecuteFollowsReady(t *testing.T) {
	others := []runtime.Object{
		aNode("unready", "zone", "False"), aLease("unready", epoch), aNode("unknown", "zone", "Unknown"), aLease("tainted", epoch),
		aNode("silent", "zone", "", func(n *corev1.Node) {
			n.CreationTimestamp, n.Spec.Taints = metav1.NewTime(epoch), []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: noExec}}
		}),
		aNode("tainted", "zone", "True", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: noExec}, {Key: "user", Effect: noExec}}
		}),
	}
	inCluster(t, 4, 0, others, func(b *bench, live, _ []string) {
		live = append(live, "unready", "tainted")
		b.term()
		b.renewFor(11*time.Second, live...) // the second token
		b.wantTaints("unready", notReadyTaints...)
		b.wantTaints("unknown", silentTaints...)
		b.wantTaints("live0")
		b.wantTaints("silent", "not-ready:NoExecute")
		b.wantTaints("tainted", "user:NoExecute")
		fakeapi.Want(t, "evictions_total", testutil.ToFloat64(b.controller.metrics.evictions.WithLabelValues("region:\x00:zone")), 2)

		// Removed by hand while the node is bad: put back, at the rate of its zone.
		b.edit("unready", func(n *corev1.Node) { n.Spec.Taints = nil })
		b.renewFor(11*time.Second, live...)
		b.wantTaints("unready", notReadyTaints...)

		// The other status: swapped at once, not counted, the time kept.
		since := b.taintedAt("unknown", corev1.TaintNodeUnreachable)
		b.post("unknown", "False")
		b.wantTaints("unknown", notReadyTaints...)
		fakeapi.WantEqual(t, "TimeAdded after the swap", b.taintedAt("unknown", corev1.TaintNodeNotReady), since)
		fakeapi.Want(t, "evictions_total, which does not count swaps", testutil.ToFloat64(b.controller.metrics.evictions.WithLabelValues("region:\x00:zone")), 3)
	})
}

func TestNodeEvents(t *testing.T) {
	inBubble(t, defaults(), []runtime.Object{aNode("node", "", "True"), aNode("live", "", "True"), aLease("live", epoch)}, func(b *bench) {
		b.events.IncludeObject = true
		b.term()
		wantEvents := func(when string, want ...string) {
			t.Helper()
			for i := range want {
				want[i] = "Normal " + want[i] + " involvedObject{kind=Node,apiVersion=v1}"
			}
			fakeapi.WantEqual(t, "events "+when, slices.Sorted(slices.Values(fakeapi.NewEvents(b.events))), want)
		}
		wantEvents("at the first sight", "RegisteredNode Node live event: Registered Node live in Controller",
			"RegisteredNode Node node event: Registered Node node in Controller")
		b.renewFor(51*time.Second, "live")
		wantEvents("after the grace period", "NodeNotReady Node node status is now: NodeNotReady")
		b.endTerm()
		b.term()
		wantEvents("of another term")
		fakeapi.NoError(t, b.CoreV1().Nodes().Delete(b.T.Context(), "node", metav1.DeleteOptions{}))
		b.pass(time.Second)
		wantEvents("of the deletion", "RemovingNode Node node event: Removing Node node from Controller")
	})
}
