package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"minikcm/pkg/controllers/node"
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
	w := newWorld(t)
	f := w.newFleet("a", 5)
	dead := f.names[0]
	pods := w.pods(dead, 3)
	w.start(scaled(), node.Name)
	for _, name := range f.names {
		w.settled(name, 0)
	}
	f.silence(true, dead)
	begin := time.Now()
	w.onlyUnknown(dead)
	if took, grace := time.Since(begin), scaled().MonitorGracePeriod; took < grace-renewEvery {
		t.Errorf("Unknown after %v, want %v at least", took, grace)
	}
	w.taints(dead, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
	w.notReady(pods...)
	writes := cluster.AuditLog(t, controlplane.Received, controlplane.Writes, controlplane.ByUser(controlplane.ServiceAccount("node-"+w.scope)),
		controlplane.ByResource("nodes", "nodes/status"), controlplane.ByName(dead))
	writes = writes.Select(func(e *auditv1.Event) bool { return e.StageTimestamp.Time.After(begin) })
	if len(writes) != 2 {
		t.Errorf("%d writes of the node, want one of its status and one of its taints:\n%v", len(writes), writes)
	}

	f.silence(false, dead)
	controlplane.MarkNodeReady(t, w.client, dead)
	w.settled(dead, 0)
	healthy := time.Now()
	controlplane.Consistently(t, scaled().MonitorGracePeriod+2*time.Second, w.nobodyUnknown)
	writes = cluster.AuditLog(t, controlplane.Received, controlplane.Writes, controlplane.ByUser(controlplane.ServiceAccount("node-"+w.scope)))
	writes = writes.Select(func(e *auditv1.Event) bool { return e.StageTimestamp.Time.After(healthy.Add(time.Second)) })
	if len(writes) != 0 {
		t.Errorf("writes while all nodes were healthy:\n%v", writes)
	}
}

func TestAPIServerAwayCondemnsNobody(t *testing.T) {
	t.Parallel()
	for _, outage := range []faults.Outage{faults.Refused, faults.Partition} {
		t.Run(fmt.Sprint("outage ", outage), func(t *testing.T) {
			w := newWorld(t)
			f := w.newFleet("a", 10)
			proxy := faults.New(t, w.config(node.Name))
			watches := faults.New(t, w.config(node.Name), faults.WithName("watches"))
			w.standby(scaled(), proxy.Config(), watches.Config(), node.Name).BeginTerm()
			controlplane.Consistently(t, 2*time.Second, w.nobodyUnknown)

			f.silence(true, f.names...)
			must(t, proxy.Outage(outage))
			must(t, watches.Outage(outage))
			controlplane.Consistently(t, scaled().MonitorGracePeriod+3*time.Second, w.nobodyUnknown)
			must(t, proxy.Restore())
			must(t, watches.Restore())
			controlplane.Consistently(t, time.Second, w.nobodyUnknown)
			f.silence(false, f.names[1:]...)
			controlplane.Consistently(t, 1*time.Second, w.nobodyUnknown)
			w.onlyUnknown(f.names[0])
		})
	}
}
