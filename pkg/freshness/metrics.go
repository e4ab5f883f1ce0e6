package freshness

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of one Monitor. Their names begin with leadership_watch_, because
// they show why a leader stepped down.
type Metrics struct {
	reopened *prometheus.CounterVec // By resource and namespace, like all.
	idle     *prometheus.GaugeVec
	lag      *prometheus.GaugeVec
	stale    *prometheus.GaugeVec
}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto, labels := promauto.With(reg), []string{"resource", "namespace"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "leadership_watch_" + name, Help: help}, labels)
	}
	return &Metrics{
		reopened: auto.NewCounterVec(prometheus.CounterOpts{Name: "leadership_watch_reopenings_total",
			Help: "Watches that the monitor reopened because the cache did not reach a known version."}, labels),
		idle: gauge("idle_seconds", "Time since the last byte of any watch or list of a resource."),
		lag: gauge("lag_seconds", "Time since the cache of a resource first missed the version of a list. Up to 60 s are normal, and 0 means that no version is missed. "+
			"While lists fail, time since the last list for which the watch was silent."),
		stale: gauge("stale", "1 while the cache of a resource differs from a consistent list."),
	}
}
