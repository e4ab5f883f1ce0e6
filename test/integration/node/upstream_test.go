package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/pkg/caches"
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

func TestEvictionForNoExecuteTaintAddedByUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		eviction bool
	}{
		{"eviction controller runs beside", true}, // cases 1 and 3 of upstream
		{"eviction controller does not run", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			controllers := []string{node.Name}
			if tt.eviction {
				controllers = append(controllers, tainteviction.Name)
			}
			w.start(shortGrace(), controllers...)
			name := w.threeNodes(conditions("Ready", "True"))
			w.pod("pod", name)
			controlplane.MarkPodReady(t, w.client, w.ns, "pod")
			controlplane.Eventually(t, patience, func(ctx context.Context) error {
				n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "CustomTaintByUser", Effect: corev1.TaintEffectNoExecute})
				_, err = w.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
				return err
			})
			check := func(ctx context.Context) error {
				p, err := w.client.CoreV1().Pods(w.ns).Get(ctx, "pod", metav1.GetOptions{})
				if err != nil {
					return err
				}
				disrupted := caches.TrimPod(p).Disruption.Status == corev1.ConditionTrue
				if (p.DeletionTimestamp != nil) != tt.eviction || disrupted != tt.eviction {
					return fmt.Errorf("terminating %v, DisruptionTarget %v; want %v", p.DeletionTimestamp != nil, disrupted, tt.eviction)
				}
				return nil
			}
			if tt.eviction {
				controlplane.Eventually(t, patience, check)
			} else {
				controlplane.Consistently(t, 3*time.Second, check)
			}
		})
	}
}

func TestTaintBasedEvictions(t *testing.T) {
	t.Parallel()
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	tolerating := func(seconds int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{
				Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			}}
		}
	}
	// Upstream also runs each case with eviction inside its lifecycle controller.
	for _, tt := range []struct {
		name       string
		ready      string
		taint      corev1.Taint
		pod        func(*corev1.Pod) // nil: no pod
		toleration int64             // seconds of the pod's not-ready toleration in the end; 0: the pod is evicted
	}{
		{"not ready, 200 s tolerated", "False", notReady, tolerating(200), 200},
		{"not ready, no toleration given", "False", notReady, func(*corev1.Pod) {}, 300},
		{"not ready, 0 s tolerated", "False", notReady, tolerating(0), 0},
		{"unreachable", "Unknown", unreachable, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := shortGrace()
			cfg.MonitorGracePeriod = time.Hour // upstream: 1 ms
			w.start(cfg, node.Name, tainteviction.Name)
			name := w.threeNodes(conditions("Ready", tt.ready))
			if tt.pod != nil {
				w.pod("pod", name, tt.pod)
			}
			w.taints(name, tt.taint)
			if tt.pod == nil {
				return
			}
			w.eventually(w.ns, "pod", func(pod *corev1.Pod) error {
				if tt.toleration == 0 {
					return isLeaving(pod)
				}
				for _, toleration := range pod.Spec.Tolerations {
					if toleration.Key == corev1.TaintNodeNotReady && *toleration.TolerationSeconds == tt.toleration {
						return nil
					}
				}
				return fmt.Errorf("tolerations are %v", pod.Spec.Tolerations)
			})
		})
	}
}
