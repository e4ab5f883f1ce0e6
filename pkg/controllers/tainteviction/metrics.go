package tainteviction

import (
	"github.com/prometheus/client_golang/prometheus"

	"minikcm/pkg/controller"
)

// Upstream's buckets, kube-controller-manager v1.37. Upstream observes nanoseconds in them; we observe seconds.
var durationBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}

type metrics struct {
	deletions prometheus.Counter
	duration  prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, l *ledger) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("taint_eviction_controller_", reg)}
	m.GaugeFunc("evictions_pending", "Pods with a deadline by which they must leave their node, past deadlines included.",
		func() float64 { return float64(l.countPending()) })
	return &metrics{
		deletions: m.CounterVec("pod_deletions_total", "Pods deleted because of a NoExecute taint.").WithLabelValues(),
		duration: m.HistogramVec("pod_deletion_duration_seconds",
			"Time from a pod's deadline until the API server had accepted its deletion.", durationBuckets).WithLabelValues(),
	}
}
