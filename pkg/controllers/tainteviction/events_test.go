package tainteviction

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
)

// Upstream's TestPodDeletionEvent; and the events have the pod's UID.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*world) // after a second
		at   time.Duration
		want []string
	}{
		{"an eviction", func(*world) {}, 10 * time.Second, []string{marking("p")}},
		{"taint removed", func(w *world) { w.taint() }, time.Second, []string{cancelling("p")}},
		{"tolerated for ever", func(w *world) {
			w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = nil })
		}, time.Second, []string{cancelling("p")}},
		{"pod deleted by another", func(w *world) { w.Remove("pods", "default", "p") }, time.Second, []string{cancelling("p")}},
		{"moved to a later time", func(w *world) {
			w.update("p", func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = 20 })
		}, 20 * time.Second, []string{marking("p")}},
		{"moved to now", func(w *world) {
			w.update("p", func(p *corev1.Pod) { p.Spec.Tolerations = nil })
		}, time.Second, []string{marking("p")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, aNode("t1"), aPod("p", tolerates("t1", 10)))
				defer w.manager(0)()
				w.Until(time.Second)
				tt.do(w)
				w.Until(tt.at - 1)
				if tt.at > time.Second && len(w.told()) > 0 {
					t.Errorf("too early: %v", w.told())
				}
				w.Until(tt.at)
				if diff := cmp.Diff(tt.want, w.told()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The durations are seconds: upstream's are not (pull requests 141311 and 141742).
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, node1(corev1.ConditionUnknown, agoTaint(corev1.TaintNodeUnreachable, 21*time.Second)),
			aPod("p"), aPod("q", tolerates(corev1.TaintNodeUnreachable, 300)), aPod("r", tolerates(corev1.TaintNodeUnreachable)))
		c, stop := w.standby(50 * time.Second)
		defer stop()
		defer w.run(c)()
		if got := testutil.ToFloat64(c.metrics.pending); got != 2 {
			t.Errorf("%v evictions pending, want 2", got)
		}
		w.Until(60 * time.Second) // the taint is taken for 20 s old, the window is 50 s
		if got := testutil.ToFloat64(c.metrics.pending); got != 1 {
			t.Errorf("%v evictions pending, want 1", got)
		}
		families, err := w.Metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				if h := m.GetHistogram(); h != nil {
					got[f.GetName()] = h.GetSampleSum()
				} else if m.GetCounter() != nil {
					got[f.GetName()] = m.GetCounter().GetValue()
				}
			}
		}
		for name, want := range map[string]float64{
			"taint_eviction_controller_pod_deletions_total":           1,
			"taint_eviction_controller_pod_deletion_duration_seconds": 70,
			"taint_eviction_controller_eviction_lateness_seconds":     70,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
	})
}
