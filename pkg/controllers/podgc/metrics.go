package podgc

import (
	"minikcm/pkg/controller"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	deletes *prometheus.CounterVec
	errors  *prometheus.CounterVec
}

// newMetrics registers the metrics. Only the series of namespace default exist from the start.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("pod_gc_collector_", reg)}
	namespace := controller.Label{"namespace", "default"}
	reason := controller.Label{"reason", string(terminated), string(outOfService), string(orphaned), string(unscheduled)}
	return &metrics{
		deletes: m.CounterVec("force_delete_pods_total", "Pods deleted without grace, by the reason for collecting them.", namespace, reason),
		errors:  m.CounterVec("force_delete_pod_errors_total", "Attempts to collect a pod that failed and are retried.", namespace, reason),
	}
}
