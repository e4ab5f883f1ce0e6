package node

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"minikcm/pkg/controllers/node"
	"minikcm/pkg/controllers/tainteviction"
	"minikcm/test/controlplane"
)

func shortGrace() node.Config {
	cfg := defaults()
	cfg.MonitorPeriod, cfg.StartupGracePeriod, cfg.MonitorGracePeriod = time.Second, time.Minute, time.Millisecond
	cfg.EvictionRate, cfg.SecondaryEvictionRate = 100, 100
	return cfg
}

func (w *world) threeNodes(middle []corev1.NodeCondition) (name string) {
	w.t.Helper()
	for i := range 3 {
		w.create(controlplane.Node(fmt.Sprintf("node-%d-%s", i, w.scope), func(n *corev1.Node) {
			n.Labels["node.kubernetes.io/exclude-disruption"] = "true"
			n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelTopologyZone] = "region1", "zone1"
			n.Status.Conditions = conditions("Ready", "True")
			if i == 1 {
				n.Status.Conditions = middle
			}
		}))
	}
	return "node-1-" + w.scope
}

// Upstream has two more cases of tolerations that admission adds. The rows of package tainteviction have tolerations.
func TestTaintBasedEvictions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, ready, taint string }{
		{"not ready", "False", corev1.TaintNodeNotReady},
		{"unreachable", "Unknown", corev1.TaintNodeUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := shortGrace()
			cfg.MonitorGracePeriod = time.Hour // upstream: 1 ms
			w.start(cfg, node.Name, tainteviction.Name)
			name := w.threeNodes(conditions("Ready", tt.ready))
			w.pod("pod", name, func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{
					Key: tt.taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(0)),
				}}
			})
			w.taints(name, corev1.Taint{Key: tt.taint, Effect: corev1.TaintEffectNoExecute})
			w.eventually(w.ns, "pod", isLeaving)
		})
	}
}
