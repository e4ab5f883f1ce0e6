package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func TestNewTermMarksNoPodOfANodeThatCameBack(t *testing.T) {
	objects := []runtime.Object{aNode("node", "zone", "Unknown"), aNode("live", "zone", "True"), aLease("live", epoch), aPod("pod", "node")}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.Freeze("nodes", true)
		b.post("node", "True") // the cache does not show the change
		b.term()
		b.pass(10 * time.Second)
		if got := podReady(b.Pod("pod")); got != "True" {
			t.Errorf("Ready = %s: the pod of a node that is well was set not ready", got)
		}
		b.Freeze("nodes", false)
		b.pass(5 * time.Second)
		if got := podReady(b.Pod("pod")); got != "True" {
			t.Errorf("Ready = %s after the cache had caught up", got)
		}
	})
}

// A stale node cache is no outage of the API server.
func TestStaleNodeCacheIsNotBlindness(t *testing.T) {
	objects, live, dying := cluster(2, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.renewFor(30*time.Second, live...) // as a standby
		b.Freeze("nodes", true)
		b.edit("live0", func(n *corev1.Node) { n.Labels["new"] = "label" })
		b.term()
		b.renewFor(30*time.Second, live...)
		if got := b.withStatus("Unknown", dying); got != 1 {
			t.Error("the node that is silent for a minute was not found")
		}
		b.Freeze("nodes", false)
	})
}

func TestPodsThatComeToANodeThatNeverPosted(t *testing.T) {
	objects := []runtime.Object{aNode("node", "", ""), aNode("live", "", "True"), aLease("live", epoch), aPod("early", "node")}
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(5*time.Second, "live")
		if c := conditionOf(b.Node("node"), corev1.NodeReady); c == nil || c.Reason != reasonNeverUpdated {
			t.Fatalf("Ready = %+v", c)
		}
		b.create(aPod("late", "node"))
		b.pass(time.Second)
		if early, late := podReady(b.Pod("early")), podReady(b.Pod("late")); early != "True" || late != "False" {
			t.Errorf("Ready of the pod that was there = %s, want True; of the one that came = %s, want False", early, late)
		}
	})
}

func TestNodeMadeAnewWithinASecond(t *testing.T) {
	objects, live, _ := cluster(3, 2)
	inBubble(t, defaults(), append(objects, aPod("pod", "dying0")), func(b *bench) {
		b.term()
		b.renewFor(55*time.Second, live...)
		if got := b.withStatus("Unknown", []string{"dying0", "dying1"}); got != 2 {
			t.Fatalf("%d nodes Unknown, want 2", got)
		}
		b.drainEvents()
		if err := b.CoreV1().Nodes().Delete(b.t.Context(), "dying0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(aNode("dying0", "zone", "True", func(n *corev1.Node) { n.UID = "another" }))
		b.pass(time.Millisecond) // the streams of nodes and pods are not ordered
		b.create(aPod("new", "dying0"))
		b.renewFor(45*time.Second, live...)
		if node := b.Node("dying0"); readiness(node) != "True" || len(node.Spec.Taints) > 0 {
			t.Errorf("Ready %s, taints %v: the new node took over the old one's fate", readiness(node), node.Spec.Taints)
		}
		if got := podReady(b.Pod("new")); got != "True" {
			t.Errorf("Ready of the new node's pod = %s", got)
		}
		b.renewFor(10*time.Second, live...)
		if got := readiness(b.Node("dying0")); got != "Unknown" {
			t.Errorf("Ready = %s, want Unknown after its own grace", got)
		}
		var registered int
		for _, e := range b.drainEvents() {
			if e == "Normal RegisteredNode Node dying0 event: Registered Node dying0 in Controller" {
				registered++
			}
		}
		if registered != 1 {
			t.Errorf("registered %d times, want once", registered)
		}
	})
}

// The API server rejects every patch of nodes for a while. The controller retries at a limited rate.
func TestNodePatchesRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		most int // requests in a minute
	}{
		{"conflict", apierrors.NewConflict(corev1.Resource("nodes"), "dying0", errors.New("for ever")), 60},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), 60},
		{"internal error", errOutage, 60},
		{"invalid", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "dying0", nil), 60},
		{"forbidden", apierrors.NewForbidden(corev1.Resource("nodes"), "dying0", errors.New("webhook")), 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects, live, _ := cluster(3, 1)
			inBubble(t, defaults(), objects, func(b *bench) {
				b.Break(tt.err, "patch nodes")
				b.term()
				b.renewFor(51*time.Second, live...)
				before := b.Count("patch nodes")
				b.renewFor(time.Minute, live...)
				if got := b.Count("patch nodes") - before; got == 0 || got > tt.most {
					t.Errorf("%d patches in a minute, want 1 to %d", got, tt.most)
				}
				b.Break(nil, "patch nodes")
				b.renewFor(20*time.Second, live...)
				if node := b.Node("dying0"); !hasTaint(node, unreachableNoExecute) || !hasTaint(node, "unreachable:NoSchedule") {
					t.Errorf("taints %v after the API server had recovered", node.Spec.Taints)
				}
				if got := b.withStatus("True", live); got != 3 {
					t.Errorf("%d of 3 live nodes Ready", got)
				}
			})
		})
	}
}

func TestPodConflictsDoNotStorm(t *testing.T) {
	objects, live, _ := cluster(3, 1)
	inBubble(t, defaults(), append(objects, aPod("pod", "dying0")), func(b *bench) {
		b.term()
		b.Freeze("pods", true)
		pod := b.Pod("pod")
		pod.Labels = map[string]string{"changed": "behind our back"}
		if _, err := b.CoreV1().Pods("default").Update(b.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renewFor(110*time.Second, live...)
		if got := b.Count("patch pods/status"); got < 3 || got > 40 {
			t.Errorf("%d patches in a minute on a pod cache that is behind", got)
		}
		b.Freeze("pods", false)
		b.renewFor(time.Minute, live...)
		if got := podReady(b.Pod("pod")); got != "False" {
			t.Errorf("Ready = %s after the cache had caught up", got)
		}
	})
}

func TestNobodyThere(t *testing.T) {
	inBubble(t, defaults(), nil, func(b *bench) {
		b.term()
		b.pass(10 * time.Minute)
		if got := b.Writes(); got != 0 {
			t.Errorf("%d writes in a cluster without nodes", got)
		}
		objects, live, _ := cluster(1, 0)
		for _, o := range objects {
			b.create(o)
		}
		b.renewFor(2*time.Minute, live...)
		if got := b.withStatus("True", live); got != 1 {
			t.Error("the first node was condemned")
		}
	})
}

func TestForeignTaintsStay(t *testing.T) {
	foreign := []corev1.Taint{
		{Key: "example.com/mine", Effect: noExec}, {Key: "example.com/mine", Value: "v", Effect: noSchedule},
		{Key: corev1.TaintNodeOutOfService, Effect: noExec}, {Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: noSchedule}, {Key: corev1.TaintNodeMemoryPressure, Effect: noExec},
	}
	objects, live, _ := cluster(3, 0)
	objects = append(objects, aNode("node", "zone", "True", func(n *corev1.Node) { n.Spec.Taints = slices.Clone(foreign) }), aLease("node", epoch))
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		stay := func(when string) {
			t.Helper()
			got := b.Node("node").Spec.Taints
			for _, want := range foreign {
				if !slices.Contains(got, want) {
					t.Errorf("%s: %v is gone from %v", when, want, got)
				}
			}
		}
		b.renewFor(5*time.Second, append(live, "node")...)
		stay("well")
		b.renewFor(55*time.Second, live...)
		if !hasTaint(b.Node("node"), unreachableNoExecute) {
			t.Fatal("the node was not tainted")
		}
		stay("unreachable")
		b.post("node", "True")
		b.pass(time.Second)
		stay("back")
		if got := len(b.Node("node").Spec.Taints); got != len(foreign) {
			t.Errorf("%d taints after it came back, want the %d that are not ours", got, len(foreign))
		}
	})
}

func TestRestartBesideDeadNodesRepeatsNothing(t *testing.T) {
	objects, live, dying := cluster(5, 2)
	inBubble(t, defaults(), append(objects, aPod("a", "dying0"), aPod("b", "dying1")), func(b *bench) {
		b.term()
		b.renewFor(80*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, dying); got != 2 {
			t.Fatalf("%d nodes tainted, want 2", got)
		}
		before := map[string]*corev1.Node{"dying0": b.Node("dying0"), "dying1": b.Node("dying1")}
		ours := func() int { return b.Count("patch") + b.Count("update nodes/status") }
		writes := ours()
		b.endTerm()
		b.term()
		b.renewFor(2*time.Minute, live...)
		if got := ours() - writes; got != 0 {
			t.Errorf("%d writes after a restart beside nodes that had been dealt with", got)
		}
		for name, node := range before {
			if got := b.Node(name).ResourceVersion; got != node.ResourceVersion {
				t.Errorf("%s was written", name)
			}
		}
	})
}

func TestGaugesRestWithTheTerm(t *testing.T) {
	objects, live, _ := cluster(3, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.term()
		b.renewFor(55*time.Second, live...)
		m := b.controller.metrics
		if got := testutil.CollectAndCount(m.zoneSize); got != 1 {
			t.Fatalf("%d zones shown by the leader, want 1", got)
		}
		m.suspended.Set(1)
		b.endTerm()
		for name, n := range map[string]int{
			"health": testutil.CollectAndCount(m.zoneHealth), "size": testutil.CollectAndCount(m.zoneSize),
			"unhealthy": testutil.CollectAndCount(m.zoneUnhealthy), "state": testutil.CollectAndCount(m.zoneState), "pending": testutil.CollectAndCount(m.pending),
		} {
			if n != 0 {
				t.Errorf("%d zones shown by %s outside a term", n, name)
			}
		}
		if got := testutil.ToFloat64(m.suspended); got != 0 {
			t.Error("suspended outside a term")
		}
		if got := testutil.ToFloat64(m.evictions.WithLabelValues("region:\x00:zone")); got != 1 {
			t.Errorf("the counter of evictions is %v, want 1: it goes on", got)
		}
	})
}

func TestPendingGaugeFollowsTheLine(t *testing.T) {
	z := testZones(defaults())
	z.fill("up", "z", up, 20, day)
	z.fill("down", "z", down, 3, day)
	pending := func(want float64, when string) {
		t.Helper()
		if got := testutil.ToFloat64(z.metrics.pending.WithLabelValues("z")); got != want {
			t.Errorf("%s: %v pending, want %v", when, got, want)
		}
	}
	z.acquire("down0", false, day)
	pending(0, "granted")
	z.acquire("down1", false, day)
	z.acquire("down2", false, day)
	pending(2, "two in line")
	z.removeNode("down1", day)
	pending(1, "one deleted")
	z.withdraw("down2", day)
	pending(0, "one well again")
}

func TestStandbyTakesOverAmidTheLine(t *testing.T) {
	objects, live, dying := cluster(20, 4)
	inBubble(t, defaults(), objects, func(b *bench) {
		ctx, kill := context.WithCancel(b.t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = b.controller.Run(ctx)
		}()
		b.renewFor(62*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, dying); got != 2 {
			t.Fatalf("%d nodes tainted, want 2", got)
		}
		times := map[string]metav1.Time{}
		for _, name := range dying {
			for _, taint := range b.Node(name).Spec.Taints {
				if taint.Effect == noExec {
					times[name] = *taint.TimeAdded
				}
			}
		}
		kill()
		<-done
		b.pass(3 * time.Second)
		b.term()
		b.renewFor(30*time.Second, live...)
		if got := b.tainted(unreachableNoExecute, dying); got != 4 {
			t.Errorf("%d nodes tainted 30 s into the new term, want 4", got)
		}
		for name, at := range times {
			for _, taint := range b.Node(name).Spec.Taints {
				if taint.Effect == noExec && !taint.TimeAdded.Equal(&at) {
					t.Errorf("%s: TimeAdded moved from %v to %v", name, at, taint.TimeAdded)
				}
			}
		}
	})
}

func TestHealthMetricMeasuresWholeSyncs(t *testing.T) {
	objects, live, _ := cluster(1, 1)
	inBubble(t, defaults(), objects, func(b *bench) {
		b.PrependReactor("get", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.GetAction).GetName() == "dying0" {
				time.Sleep(3 * time.Second) // the fake API server handles one request at a time
			}
			return false, nil, nil
		})
		b.term()
		b.renewFor(time.Minute, live...)
		registry := prometheus.NewRegistry()
		registry.MustRegister(b.controller.metrics.updateSeconds)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if got := families[0].GetMetric()[0].GetHistogram().GetSampleSum(); got < 3 {
			t.Errorf("all syncs took %v s, want at least the 3 s that one of them waited for a Lease", got)
		}
	})
}
