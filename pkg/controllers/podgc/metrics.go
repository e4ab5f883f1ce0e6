package podgc

import "github.com/prometheus/client_golang/prometheus"

const subsystem = "pod_gc_collector"

type metrics struct {
	deletes *prometheus.CounterVec
	errors  *prometheus.CounterVec
}

// newMetrics registers the metrics. Namespaces are not known beforehand, so no label values are initialised
// but those of the namespace that every cluster has.
func newMetrics(reg prometheus.Registerer) *metrics {
	labels := []string{"namespace", "reason"}
	m := &metrics{
		deletes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "force_delete_pods_total",
			Help: "Pods deleted without grace, by the reason for collecting them.",
		}, labels),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "force_delete_pod_errors_total",
			Help: "Attempts to collect a pod that failed and are retried.",
		}, labels),
	}
	for _, c := range causes {
		m.deletes.WithLabelValues("default", string(c))
		m.errors.WithLabelValues("default", string(c))
	}
	reg.MustRegister(m.deletes, m.errors)
	return m
}
