package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Defects of kube-controller-manager v1.37 that must not be found here, by their row in the specification, and faults.

// everything is what fails when the API server is away.
var everything = []string{
	"get nodes", "get leases", "list leases", "list nodes", "update nodes/status", "patch nodes", "patch pods/status",
}

func TestN11NodeMadeAnewStartsAfresh(t *testing.T) {
	objects, live, _ := cluster(1, 0)
	inBubble(t, defaults(), append(objects, aNode("node", "zone", "True")), func(b *bench) {
		b.term()
		b.renewFor(45*time.Second, live...)
		if err := b.CoreV1().Nodes().Delete(b.t.Context(), "node", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(aNode("node", "zone", "", func(n *corev1.Node) {
			n.UID, n.CreationTimestamp = "another", metav1.Now()
		}))
		b.renewFor(59*time.Second, live...)
		if got := readiness(b.node("node")); got != "" {
			t.Errorf("Ready of a node 59 s old = %s: it inherited the silence of an earlier one", got)
		}
		b.renewFor(2*time.Second, live...)
		if got := readiness(b.node("node")); got != corev1.ConditionUnknown {
			t.Errorf("Ready of a node 61 s old = %q, want Unknown", got)
		}
	})
}

func TestN12TaintsSurviveANewTerm(t *testing.T) {
	old := metav1.NewTime(epoch.Add(-time.Hour))
	objects, live, _ := cluster(3, 0)
	objects = append(objects, aNode("dead", "zone", "Unknown", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{
			{Key: corev1.TaintNodeUnreachable, Effect: noSchedule, TimeAdded: &old}, {Key: corev1.TaintNodeUnreachable, Effect: noExec, TimeAdded: &old},
		}
	}))
	inBubble(t, defaults(), objects, func(b *bench) {
		for range 2 {
			b.term()
			b.renewFor(time.Minute, live...)
			b.endTerm()
		}
		if got := b.count("patch nodes"); got != 0 {
			t.Errorf("%d patches of a node whose taints were right", got)
		}
		for _, taint := range b.node("dead").Spec.Taints {
			if !taint.TimeAdded.Equal(&old) {
				t.Errorf("time of %s:%s = %v, want %v", taint.Key, taint.Effect, taint.TimeAdded, old)
			}
		}
	})
}

func TestN26LeaseWritesThatRenewNothingKeepNobodyAlive(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(20*time.Second, live...)
		leases := b.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease, err := leases.Get(b.t.Context(), "dying0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Annotations = map[string]string{"migrated": "yes"}
		if _, err := leases.Update(b.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renewFor(31*time.Second, live...)
		if got := readiness(b.node("dying0")); got != corev1.ConditionUnknown {
			t.Errorf("Ready = %s, want Unknown", got)
		}
	})
}

func TestN27StaleCacheChangesNoZone(t *testing.T) {
	objects, live, dying := cluster(7, 3)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(80*time.Second, live...) // three are found dead, two of them tainted by now
		tainted := b.tainted(unreachableNoExecute, dying)
		if got := b.withStatus("Unknown", dying); got != 3 || tainted == 0 {
			t.Fatalf("%d nodes Unknown, %d tainted", got, tainted)
		}
		b.freeze("leases", true)
		for range 6 { // a minute and more: the cached Leases are old
			b.renew(live...)
			b.pass(10 * time.Second)
			if b.controller.zones.isStopped() || b.controller.zones.states()["region:\x00:zone"] != zoneNormal {
				t.Errorf("zones: stopped %v, states %v", b.controller.zones.isStopped(), b.controller.zones.states())
			}
		}
		if got := b.withStatus("True", live); got != 7 {
			t.Errorf("%d of 7 live nodes are Ready", got)
		}
		if got := b.tainted(unreachableNoExecute, dying); got < tainted {
			t.Errorf("%d nodes tainted, it was %d", got, tainted)
		}
		if got := b.controller.sight.suspended(5*time.Second, time.Now()); got != causeStale {
			t.Errorf("suspended = %q, want %q: the test has not reached what it is about", got, causeStale)
		}
	})
}

func TestN41TaintFollowsWithoutWaitingForTheCache(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(50*time.Second, live...)
		b.freeze("nodes", true)
		b.pass(2 * time.Millisecond)
		if node := b.node("dying0"); !hasTaint(node, unreachableNoExecute) || readiness(node) != "Unknown" {
			t.Errorf("Ready %s, taints %v: the cache shows neither, and need not", readiness(node), node.Spec.Taints)
		}
		b.freeze("nodes", false)
	})
}

func TestN51NoTaintStaysWhileEverythingIsDown(t *testing.T) {
	objects, live, _ := cluster(1, 2)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(55*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, []string{"dying0", "dying1"}); got != 1 {
			t.Fatalf("%d nodes tainted, want 1", got)
		}
		b.pass(51 * time.Second) // the last one falls silent
		all := []string{"dying0", "dying1", "live0"}
		if got := b.withStatus("Unknown", all); got != 3 {
			t.Fatalf("%d nodes Unknown, want 3", got)
		}
		if got := b.tainted(unreachableNoExecute, all); got != 0 {
			t.Errorf("%d nodes tainted while all are down", got)
		}
		b.edit("dying1", func(n *corev1.Node) { // a taint that came in between, or by somebody else
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: noExec})
		})
		b.pass(time.Second)
		if got := b.tainted(unreachableNoExecute, all); got != 0 {
			t.Errorf("%d nodes tainted after one was put while all are down", got)
		}
		b.post("live0", "True")
		b.pass(5 * time.Second)
		if got := b.tainted(unreachableNoExecute, all); got != 0 {
			t.Error("tainted at once after the stop")
		}
		b.renewFor(6*time.Second, "live0")
		if got := b.tainted(unreachableNoExecute, all); got != 1 {
			t.Errorf("%d nodes tainted 11 s after the stop, want 1", got)
		}
	})
}

func TestN50ReadyNodesStartAnewAfterAStop(t *testing.T) {
	objects := []runtime.Object{
		aNode("a", "1", "False"), aLease("a", epoch), aNode("b", "2", "True"), aLease("b", epoch), aNode("c", "2", "True"), aLease("c", epoch),
	}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(30*time.Second, "a", "c") // b silent for 30 s
		b.post("b", "False")                 // sign of life at 30
		b.renewFor(10*time.Second, "a", "c")
		b.post("c", "False") // all down
		if !b.controller.zones.isStopped() {
			t.Fatal("not stopped")
		}
		b.edit("b", func(n *corev1.Node) { condition(n, corev1.NodeReady).Status = "True" }) // without a new heartbeat: seen at 30
		r, _ := b.controller.observations.get("b")
		if b.controller.zones.isStopped() || !r.heartbeat.seen.Equal(time.Now()) {
			t.Errorf("stopped %v, b seen at %v, want now (%v)", b.controller.zones.isStopped(), r.heartbeat.seen.Sub(epoch), time.Since(epoch))
		}
		if r, _ := b.controller.observations.get("a"); r.heartbeat.seen.Equal(time.Now()) {
			t.Error("a, which is not Ready, was given a new start too")
		}
	})
}

func TestN54ZoneOfExcludedNodesIsAZone(t *testing.T) {
	exclude := func(n *corev1.Node) { n.Labels[excludeLabel] = "" }
	objects := []runtime.Object{aNode("dead", "zone", "Unknown", exclude), aNode("dead2", "zone", "Unknown", exclude), aNode("live", "zone", "True", exclude), aLease("live", epoch)}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(time.Second, "live")
		dead := []string{"dead", "dead2"}
		if got := b.tainted(unreachableNoExecute, dead); got != 1 {
			t.Errorf("%d nodes tainted at once, want 1", got)
		}
		patches := b.count("patch nodes")
		b.renewFor(8*time.Second, "live")
		if got := b.tainted(unreachableNoExecute, dead); got != 1 {
			t.Errorf("%d nodes tainted after 9 s, want 1", got)
		}
		b.renewFor(2*time.Second, "live")
		if got := b.tainted(unreachableNoExecute, dead); got != 2 {
			t.Errorf("%d nodes tainted after 11 s, want 2", got)
		}
		b.renewFor(time.Minute, "live")
		if got := b.count("patch nodes"); got != patches+1 {
			t.Errorf("%d more patches, want 1: nobody is tainted again", got-patches)
		}
	})
}

func TestManyDueAreAskedForInOneList(t *testing.T) {
	objects, live, dying := cluster(5, 50)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		lists := b.count("list leases")
		b.renewFor(51*time.Second, live...)
		gets := b.count("get leases") - 6*5 // the kubelets read before they write
		if got := b.withStatus("Unknown", dying); got != 50 {
			t.Errorf("%d of 50 nodes Unknown", got)
		}
		if got := b.count("list leases") - lists; got > 10 || gets > manyNodes+1 {
			t.Errorf("%d lists and %d gets of Leases for 50 verdicts", got, gets)
		}
	})
}

func TestZoneThatDiesAtOnceIsNotTaintedBeforeItsStateChanges(t *testing.T) {
	objects, _, dying := cluster(0, 100)
	objects = append(objects, aNode("other", "other", "True"), aLease("other", epoch))
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		// The last renewals are spread over ten seconds, as in life.
		for i := range 100 {
			b.renew(dying[i])
			b.pass(100 * time.Millisecond)
		}
		b.renew("other")
		b.renewFor(40*time.Second, "other")
		for range 110 {
			if state := b.controller.zones.states()["region:\x00:zone"]; state == zoneNormal && b.tainted(unreachableNoExecute, dying) > 0 {
				t.Fatal("a node was tainted NoExecute while its zone was still Normal")
			}
			b.pass(100 * time.Millisecond)
		}
		if got := b.withStatus("Unknown", dying); got != 100 {
			t.Fatalf("%d of 100 nodes Unknown", got)
		}
		b.renewFor(35*time.Second, "other")
		if got := b.tainted(unreachableNoExecute, dying); got < 3 || got > 6 {
			t.Errorf("%d nodes tainted 35 s after the zone failed, want one each 10 s", got)
		}
	})
}

func TestFewDeadNodesAreTaintedAtTheRate(t *testing.T) {
	objects, live, dying := cluster(97, 3)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(50*time.Second, live...)
		b.pass(time.Second)
		for i, want := range []int{1, 2, 3} {
			if got := b.tainted(unreachableNoExecute, dying); got != want {
				t.Errorf("%d nodes tainted after %d s, want %d", got, 10*i+1, want)
			}
			b.renewFor(10*time.Second, live...)
		}
	})
}

// killed at a write: the process dies right after the nth request that changes something, and another one starts.
func TestCrashAtAnyWriteLeavesNoPodReady(t *testing.T) {
	for crash := 1; crash <= 8; crash++ {
		t.Run(fmt.Sprint("after write ", crash), func(t *testing.T) {
			objects, live, _ := cluster(2, 1)
			for i := range 5 {
				objects = append(objects, aPod(fmt.Sprint("pod", i), "dying0"))
			}
			inBubble(t, defaults(), objects, func(b *bench) {
				ours := func() int { return b.countLocked("patch") + b.countLocked("update nodes/status") }
				ctx, kill := context.WithCancel(b.t.Context())
				done := make(chan struct{})
				b.api.after(func() {
					if ours() == crash {
						b.breakDownLocked(context.Canceled, everything...)
						kill()
					}
				})
				go func() {
					defer close(done)
					_ = b.controller.Run(ctx)
				}()
				b.renewFor(55*time.Second, live...)
				kill()
				<-done
				b.api.after(nil)
				b.breakDown(nil, everything...)
				b.term()
				b.renewFor(60*time.Second, live...)
				for i := range 5 {
					if got := podReady(b.pod(fmt.Sprint("pod", i))); got != "False" {
						t.Errorf("pod%d Ready = %s for ever", i, got)
					}
				}
				if node := b.node("dying0"); !hasTaint(node, unreachableNoExecute) || readiness(node) != "Unknown" {
					t.Errorf("Ready %s, taints %v", readiness(node), node.Spec.Taints)
				}
			})
		})
	}
}

func TestStatusWriteThatMeetsAHeartbeatIsCalledOff(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(49*time.Second, live...)
		b.freeze("nodes", true)
		b.post("dying0", "True") // the cache does not show it
		b.pass(30 * time.Second)
		if got := b.count("update nodes/status"); got != 0 {
			t.Errorf("%d status writes", got)
		}
		if got := testutil.ToFloat64(b.controller.metrics.suppressed.WithLabelValues(suppressedAlive)); got != 1 {
			t.Errorf("verdicts called off = %v, want 1", got)
		}
		b.freeze("nodes", false)
	})
}

func TestConflictsAreRetriedQuietly(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		conflict := apierrors.NewConflict(corev1.Resource("nodes"), "dying0", nil)
		b.breakDown(conflict, "update nodes/status", "patch nodes")
		b.term()
		b.renewFor(50*time.Second, live...)
		b.pass(100 * time.Millisecond)
		if got := b.count("update nodes/status"); got < 3 || got > 7 {
			t.Errorf("%d tries in 100 ms, want one each 20 ms", got)
		}
		b.breakDown(nil, "update nodes/status")
		b.pass(100 * time.Millisecond) // the patch is granted a token and refused
		if got := b.count("patch nodes"); got < 3 {
			t.Errorf("%d tries to patch in 100 ms", got)
		}
		b.breakDown(nil, "patch nodes")
		b.pass(50 * time.Millisecond)
		if node := b.node("dying0"); readiness(node) != "Unknown" || !hasTaint(node, unreachableNoExecute) {
			t.Errorf("Ready %s, taints %v: a refused patch must not cost the token", readiness(node), node.Spec.Taints)
		}
	})
}

func TestLabelsAndTaintsGoInOnePatch(t *testing.T) {
	node := aNode("node", "zone", "True", func(n *corev1.Node) {
		n.Labels["kubernetes.io/os"] = "linux"
		n.Spec.Unschedulable = true
		n.UID = types.UID("u")
	})
	inBubble(t, defaults(), []runtime.Object{node}, func(b *bench) {
		b.term()
		b.pass(time.Second)
		got := b.node("node")
		if got.Labels["beta.kubernetes.io/os"] != "linux" || !hasTaint(got, "unschedulable:NoSchedule") || b.count("patch nodes") != 1 {
			t.Errorf("labels %v, taints %v, %d patches", got.Labels, got.Spec.Taints, b.count("patch nodes"))
		}
	})
}
