package replicaset

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
)

type metrics struct {
	deletionAgeRatio prometheus.Observer
	staleSkips       *prometheus.CounterVec // group, resource
}

func newMetrics(reg prometheus.Registerer, states *states, c clock.PassiveClock) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("replicaset_controller_", reg)}
	m.GaugeFunc("longest_mismatch_seconds",
		"How long the longest-waiting ReplicaSet has been without the number of pods it wants, terminating namespaces excepted.",
		func() float64 { return longestMismatch(states, c.Now()).Seconds() })
	ms := &metrics{
		deletionAgeRatio: m.HistogramVec("sorting_deletion_age_ratio",
			"Age of each ready pod chosen for deletion, as a multiple of the age of the youngest ready pod of its ReplicaSet.",
			prometheus.ExponentialBuckets(0.25, 2, 6)).WithLabelValues(),
		staleSkips: m.CounterVec("stale_sync_skips_total", "Syncs postponed because a cache did not show our own writes yet.",
			controller.Label{"group"}, controller.Label{"resource"}),
	}
	ms.staleSkips.WithLabelValues("", "pods")
	ms.staleSkips.WithLabelValues("apps", "replicasets")
	return ms
}
