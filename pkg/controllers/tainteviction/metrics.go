package tainteviction

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Upstream's buckets, kube-controller-manager v1.37. Upstream observes nanoseconds in them; we observe seconds.
var durationBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}

const subsystem = "taint_eviction_controller"

type metrics struct {
	deletions prometheus.Counter
	duration  prometheus.Histogram
	lateness  prometheus.Histogram
	pending   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		deletions: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "pod_deletions_total",
			Help: "Pods deleted because of a NoExecute taint.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "pod_deletion_duration_seconds",
			Help:    "Time from a pod's deadline until the API server had accepted its deletion.",
			Buckets: durationBuckets,
		}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "eviction_lateness_seconds",
			Help:    "Time from a pod's deadline until its eviction was begun.",
			Buckets: durationBuckets,
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "evictions_pending",
			Help: "Pods with a deadline by which they must leave their node, past deadlines included.",
		}),
	}
	reg.MustRegister(m.deletions, m.duration, m.lateness, m.pending)
	return m
}

func (m *metrics) observeStart(due, now time.Time) { m.lateness.Observe(now.Sub(due).Seconds()) }

func (m *metrics) observeDeletion(due, now time.Time) {
	m.deletions.Inc()
	m.duration.Observe(now.Sub(due).Seconds())
}
