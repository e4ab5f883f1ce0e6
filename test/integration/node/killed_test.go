package node

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

// daemon starts the whole program as a process of its own, on a proxy that may hold its writes.
func daemon(t *testing.T, script func(*faults.Proxy)) *controlplane.Process {
	t.Helper()
	proxy := faults.New(t, cluster.ConfigFor("manager", "system:masters"))
	if script != nil {
		script(proxy)
	}
	return controlplane.StartProcess(t, "--kubeconfig="+cluster.KubeconfigFor(t, proxy.Config()),
		"--controllers=node-lifecycle-controller,taint-eviction-controller", "--leader-elect=false", "--secure-port=0", "-v=2",
		"--node-monitor-period=500ms", "--node-monitor-grace-period=8s", "--node-startup-grace-period=9s")
}

// The process is killed with SIGKILL at its nth write, wherever that is between the status of the dead node and the last of its pods:
// before the API server has seen the write, or after it has and before the process knows. From then on nothing of it reaches the server.
func TestKilledAtAnyWriteLeavesNoPodReady(t *testing.T) {
	for _, tt := range []struct {
		write int // from 1: the node's status, its taints and the pods
		name  string
		fault func(*faults.Gate) faults.Fault
	}{
		{1, "lost", faults.Hold}, {1, "committed", faults.HoldAnswer},
		{2, "lost", faults.Hold}, {2, "committed", faults.HoldAnswer},
		{3, "committed", faults.HoldAnswer}, {4, "committed", faults.HoldAnswer},
	} {
		t.Run(fmt.Sprintf("write %d %s", tt.write, tt.name), func(t *testing.T) {
			w, ns := newWorld(t), cluster.Namespace(t)
			f := w.newFleet("a", 3)
			pods := w.pods(ns, f.names[0], 4)
			gate, later := faults.NewGate(), faults.NewGate()
			var armed atomic.Bool // the start brings writes of its own
			first := daemon(t, func(p *faults.Proxy) {
				ours := faults.On(faults.Writes, "nodes,nodes/status,pods/status")
				ours.When = func(*http.Request) bool { return armed.Load() }
				p.Inject(ours, tt.fault(gate), faults.After(tt.write-1), faults.Next(1))
				p.Inject(ours, faults.Hold(later), faults.After(tt.write-1))
			})
			for _, name := range f.names {
				w.settled(name, 0)
			}
			armed.Store(true)
			f.silence(true, f.names[0])
			held := gate.Next(t)
			must(t, first.Kill())
			held.Cut()

			daemon(t, nil)
			w.onlyUnknown(f.names[0])
			w.notReady(ns, pods...)
			w.taints(f.names[0], corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
		})
	}
}
