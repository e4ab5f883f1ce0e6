package namespace

import (
	"github.com/prometheus/client_golang/prometheus"

	"minikcm/pkg/controller"
)

type metrics struct {
	blocked *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("namespace_deletion_", reg)}
	return &metrics{
		blocked: m.GaugeVec("blocked", "1 for each cause that holds up the deletion of a namespace: pods, finalizers, content, discovery, error, grace.",
			controller.Label{"namespace"}, controller.Label{"cause"}),
	}
}

// showCauses replaces the causes of a namespace.
func (m *metrics) showCauses(namespace string, causes ...string) {
	for _, cause := range []string{causePods, causeFinalizers, causeContent, causeDiscovery, causeError, causeGrace} {
		m.blocked.DeleteLabelValues(namespace, cause)
	}
	for _, cause := range causes {
		m.blocked.WithLabelValues(namespace, cause).Set(1)
	}
}
