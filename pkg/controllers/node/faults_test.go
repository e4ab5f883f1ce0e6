package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
		zone := "region:\x00:zone"
		for name, is := range map[string]struct {
			gauge *prometheus.GaugeVec
			want  float64
		}{"health": {m.zoneHealth, 75}, "size": {m.zoneSize, 4}, "unhealthy": {m.zoneUnhealthy, 1}} {
			if got := testutil.ToFloat64(is.gauge.WithLabelValues(zone)); got != is.want {
				t.Errorf("%s = %v, want %v", name, got, is.want)
			}
		}
		if got := testutil.ToFloat64(m.zoneState.WithLabelValues(zone, "Normal")); got != 1 {
			t.Errorf("state gauge of Normal = %v", got)
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
