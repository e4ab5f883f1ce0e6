package node

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/kubelet"
	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/podgc"
	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
	"minikcm/test/faults"
)

func (w *world) process(name, controller string) (*controlplane.Process, *faults.Proxy) {
	w.t.Helper()
	proxy := faults.New(w.t, w.config(controller), faults.WithName(name))
	return controlplane.StartProcess(w.t, "--kubeconfig="+cluster.KubeconfigFor(w.t, proxy.Config()),
		"--controllers="+controller, "--leader-elect=false", "--secure-port=0", "--node-eviction-rate=10",
		"--node-monitor-period=500ms", "--node-monitor-grace-period=8s", "--node-startup-grace-period=9s"), proxy
}

// victim is a node with a pod.
type victim struct{ node, pod string }

// TestKilledAtEachWrite kills the process at each kind of write of each controller, before the API server receives the
// write or before the process receives the response. The kinds of one controller share a process.
func TestKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		controller string
		writes     []faults.Match
		act        func(w *world, f *fleet, v victim)
		done       func(pod *corev1.Pod) error
	}{
		{
			node.Name, []faults.Match{faults.On("update,patch", "nodes/status"), faults.On("patch", "nodes"), faults.On("patch", "pods/status")},
			func(_ *world, f *fleet, v victim) { f.silence(v.node) },
			func(pod *corev1.Pod) error {
				if ready := caches.TrimPod(pod).Ready.Status; ready != corev1.ConditionFalse {
					return fmt.Errorf("Ready is %s, want False", ready)
				}
				return nil
			},
		},
		{
			tainteviction.Name, []faults.Match{faults.On("patch", "pods/status"), faults.On("delete", "pods")},
			func(w *world, _ *fleet, v victim) { w.setTaints(v.node, evictTaint) },
			func(pod *corev1.Pod) error {
				if pod.DeletionTimestamp == nil || controlplane.Disruption(pod) == nil {
					return fmt.Errorf("deleted %v, condition %v", pod.DeletionTimestamp, controlplane.Disruption(pod))
				}
				return nil
			},
		},
		{
			// pods of an out-of-service node, because a missing node takes 40 s
			podgc.Name, []faults.Match{faults.On("patch", "pods/status"), faults.On("delete", "pods")},
			func(w *world, _ *fleet, v victim) {
				w.setTaints(v.node, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
				controlplane.Must(w.t, w.client.CoreV1().Pods(w.ns).Delete(w.t.Context(), v.pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(300))}))
			},
			isGone,
		},
	} {
		t.Run(tt.controller, func(t *testing.T) {
			w := newWorld(t)
			ways := []func(*faults.Gate) faults.Fault{faults.Hold, faults.HoldAnswer}
			var f *fleet
			var victims []victim
			if tt.controller == node.Name {
				f = w.newFleet(14)
			}
			for n := range len(tt.writes) * len(ways) {
				v := victim{pod: fmt.Sprint("pod-", n)}
				if f != nil {
					v.node = f.names[n]
				} else {
					v.node = w.node(fmt.Sprint("node-", n))
				}
				controlplane.Must(t, kubelet.Post(t.Context(), w.client, w.pod(w.ns, v.pod, v.node), kubelet.Ready, "", ""))
				victims = append(victims, v)
			}
			first, proxy := w.process("first", tt.controller)
			if f != nil {
				for _, name := range f.names {
					w.taints(name)
				}
			}
			var gates []*faults.Gate
			for n, v := range victims {
				gates = append(gates, faults.NewGate())
				m := tt.writes[n/len(ways)]
				m.Name = v.node
				if m.Resource == "pods" || m.Resource == "pods/status" {
					m.Name = v.pod
				}
				proxy.Inject(m, ways[n%len(ways)](gates[n]))
			}
			for _, v := range victims {
				tt.act(w, f, v)
			}
			var held []*faults.Held
			for _, gate := range gates {
				held = append(held, gate.Next(t))
			}
			controlplane.Must(t, first.Kill())
			for _, h := range held {
				h.Cut()
			}
			w.process("second", tt.controller)
			for _, v := range victims {
				w.eventually(w.ns, v.pod, tt.done)
				if f != nil {
					w.taints(v.node, corev1.TaintNodeUnreachable+":NoSchedule", corev1.TaintNodeUnreachable+":NoExecute")
				}
			}
		})
	}
}
