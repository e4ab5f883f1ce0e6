package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// nobodyUnknown is a check that no node is Unknown.
func (w *world) nobodyUnknown(ctx context.Context) error {
	nodes, err := w.list(ctx)
	if err != nil {
		return err
	}
	if names := unknown(nodes); len(names) > 0 {
		return fmt.Errorf("%d of %d nodes are Unknown: %v", len(names), len(nodes), names)
	}
	return nil
}

// onlyUnknown waits until exactly the named node is Unknown.
func (w *world) onlyUnknown(name string) {
	w.t.Helper()
	controlplane.Eventually(w.t, patience, func(ctx context.Context) error {
		nodes, err := w.list(ctx)
		if err != nil {
			return err
		}
		if names := unknown(nodes); len(names) != 1 || names[0] != name {
			return fmt.Errorf("Unknown are %v, want %s", names, name)
		}
		return nil
	})
}

func TestDeadNodeGoesTheWholeWay(t *testing.T) {
	w, ns := newWorld(t), cluster.Namespace(t)
	f := w.newFleet("a", 5)
	dead := f.names[0]
	pods := w.pods(ns, dead, 3)
	start(t, scaled(), false)
	for _, name := range f.names {
		w.settled(name, 0) // the taint of its admission is gone
	}
	f.silence(true, dead)
	begin := time.Now()
	w.onlyUnknown(dead)
	took := time.Since(begin)
	t.Logf("silent node Unknown after %v", took)
	if grace := scaled().MonitorGracePeriod; took < grace-renewEvery || controlplane.Long() && took > grace+10*time.Second { // on a busy machine it says nothing
		t.Errorf("Unknown after %v, want about %v", took, grace)
	}
	w.taints(dead, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	w.notReady(ns, pods...)
	writes := cluster.AuditLog(t, controlplane.Received, controlplane.Writes, controlplane.ByUser("system:serviceaccount:kube-system:node-controller"),
		controlplane.ByResource("nodes", "nodes/status"), controlplane.ByName(dead))
	writes = writes.Where(func(e *auditv1.Event) bool { return e.StageTimestamp.Time.After(begin) })
	if len(writes) != 2 {
		t.Errorf("%d writes of the node, want one of its status and one of its taints:\n%v", len(writes), writes)
	}

	f.silence(false, dead)
	controlplane.MarkNodeReady(t, w.client, dead)
	w.settled(dead, 0)
	healthy := time.Now()
	controlplane.Consistently(t, scaled().MonitorGracePeriod+2*time.Second, w.nobodyUnknown)
	writes = cluster.AuditLog(t, controlplane.Received, controlplane.Writes, controlplane.ByUser("system:serviceaccount:kube-system:node-controller"))
	writes = writes.Where(func(e *auditv1.Event) bool { return e.StageTimestamp.Time.After(healthy.Add(time.Second)) })
	if len(writes) != 0 {
		t.Errorf("writes while all nodes were healthy:\n%v", writes)
	}
}

func TestAPIServerAwayCondemnsNobody(t *testing.T) {
	for _, outage := range []faults.Outage{faults.Refused, faults.BlackHole, faults.Partition} {
		t.Run(fmt.Sprint("outage ", outage), func(t *testing.T) {
			w := newWorld(t)
			f := w.newFleet("a", 10)
			proxy := faults.New(t, controllerConfig())
			watches := faults.New(t, watcherConfig(), faults.WithName("watches"))
			standby(t, scaled(), false, proxy.Config(), watches.Config()).beginTerm()
			controlplane.Consistently(t, 2*time.Second, w.nobodyUnknown)

			f.silence(true, f.names...) // nobody reaches the API server
			must(t, proxy.Outage(outage))
			must(t, watches.Outage(outage))
			controlplane.Consistently(t, scaled().MonitorGracePeriod+3*time.Second, w.nobodyUnknown)
			must(t, proxy.Restore())
			must(t, watches.Restore())
			controlplane.Consistently(t, time.Second, w.nobodyUnknown) // it is back, the Leases are not renewed yet
			f.silence(false, f.names[1:]...)
			controlplane.Consistently(t, 1*time.Second, w.nobodyUnknown)
			w.onlyUnknown(f.names[0]) // the one that really died
		})
	}
}

func TestFrozenLeaseWatchCondemnsNobody(t *testing.T) {
	w := newWorld(t)
	f := w.newFleet("a", 10)
	watches := faults.New(t, watcherConfig())
	standby(t, scaled(), false, controllerConfig(), watches.Config()).beginTerm()
	fault := watches.FreezeWatches(faults.Watches("leases"))
	controlplane.Consistently(t, scaled().MonitorGracePeriod+4*time.Second, w.nobodyUnknown)
	f.silence(true, f.names[0])
	w.onlyUnknown(f.names[0]) // found by the lists that take the watch's place
	fault.Thaw()
	f.silence(false, f.names[0])
	controlplane.MarkNodeReady(t, w.client, f.names[0])
	controlplane.Consistently(t, scaled().MonitorGracePeriod+2*time.Second, w.nobodyUnknown)
}

func TestZoneOfAHundredDiesAtOnce(t *testing.T) {
	w := newWorld(t)
	dying := w.newFleet("dying", 100)
	w.newFleet("well", 3)
	cfg := scaled()
	cfg.MonitorGracePeriod, cfg.EvictionRate = 8*time.Second, 1 // so long a slow API server may bring no verdict
	running := start(t, cfg, false)
	dying.fallSilent()
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		nodes, err := w.list(ctx)
		if err != nil {
			return err
		}
		dead, tainted := len(unknown(nodes)), len(noExecute(nodes, "dying"))
		// 55 is the threshold of PartialDisruption. A busy API server shows the verdicts later than the controller counts them.
		if known := running.unhealthy(t, "dying"); max(dead, known) < 55 && tainted > 0 {
			t.Fatalf("%d nodes tainted NoExecute when %d of 100 were not Ready: the state of the zone had not changed", tainted, known)
		}
		if dead < 100 || tainted == 0 {
			return fmt.Errorf("%d of 100 nodes Unknown, %d tainted", dead, tainted)
		}
		return nil
	})
	w.rate(t, "dying", cfg.EvictionRate)
}

func TestThreeOfAHundredDie(t *testing.T) {
	w := newWorld(t)
	f := w.newFleet("zone", 100)
	cfg := scaled()
	cfg.EvictionRate = 0.5
	start(t, cfg, false)
	f.silence(true, f.names[:3]...)
	controlplane.Eventually(t, patience, func(ctx context.Context) error {
		nodes, err := w.list(ctx)
		if err != nil {
			return err
		}
		if n := len(noExecute(nodes, "zone")); n != 3 {
			return fmt.Errorf("%d nodes tainted, want 3", n)
		}
		return nil
	})
	w.rate(t, "zone", cfg.EvictionRate)
	if err := w.othersReady(f.names[3:]); err != nil {
		t.Error(err)
	}
}

// rate compares the times of the NoExecute taints, which have whole seconds, with a rate.
func (w *world) rate(t testing.TB, prefix string, perSecond float32) {
	t.Helper()
	nodes, err := w.list(t.Context())
	must(t, err)
	var first, last time.Time
	n := 0
	for _, node := range nodes {
		for _, taint := range node.Spec.Taints {
			if taint.Key != corev1.TaintNodeUnreachable || taint.Effect != corev1.TaintEffectNoExecute {
				continue
			}
			n++
			if at := taint.TimeAdded.Time; first.IsZero() || at.Before(first) {
				first = at
			}
			if at := taint.TimeAdded.Time; at.After(last) {
				last = at
			}
		}
	}
	if least := time.Duration(float64(n-1)/float64(perSecond)*float64(time.Second)) - time.Second; last.Sub(first) < least {
		t.Errorf("%d nodes of %s tainted within %v, want at least %v", n, prefix, last.Sub(first), least)
	}
}

func (w *world) othersReady(names []string) error {
	for _, name := range names {
		n, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if controlplane.NodeReady(n) != corev1.ConditionTrue || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node %s: Ready %s, taints %v", name, controlplane.NodeReady(n), n.Spec.Taints)
		}
	}
	return nil
}
