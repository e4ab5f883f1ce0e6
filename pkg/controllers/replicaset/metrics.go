package replicaset

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
)

// readUnconfirmed is the reason for a live read of a needed pod whose delete has an unknown outcome.
const readUnconfirmed = "unconfirmed"

type metrics struct {
	deletionAgeRatio prometheus.Observer
	staleSkips       *prometheus.CounterVec // group, resource
	liveReads        *prometheus.CounterVec // reason
	unknownOutcomes  *prometheus.CounterVec // verb
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
		liveReads: m.CounterVec("live_reads_total", "Syncs decided on a consistent read of the API server instead of the caches.",
			controller.Label{"reason", controller.ReadFirstWrite, controller.ReadOverdue, readUnconfirmed}),
		unknownOutcomes: m.CounterVec("unknown_outcomes_total",
			"Creates and deletes with unknown outcome, for example because of a timeout. None is carried out twice.",
			controller.Label{"verb", "create", "delete"}),
	}
	ms.staleSkips.WithLabelValues("", "pods")
	ms.staleSkips.WithLabelValues("apps", "replicasets")
	return ms
}
