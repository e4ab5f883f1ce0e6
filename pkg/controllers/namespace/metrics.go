package namespace

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"minikcm/pkg/controller"
)

// maxSeries bounds the gauge with a label per namespace. Further series are left out.
const maxSeries = 100

type metrics struct {
	duration prometheus.Observer
	blocked  *prometheus.GaugeVec

	lock   sync.Mutex
	causes map[string][]string // of blocked, by namespace
	series int
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("namespace_deletion_", reg)}
	return &metrics{
		duration: m.HistogramVec("duration_seconds", "From this process seeing the deletion of a namespace until its content was gone and it was finalized.",
			[]float64{.1, .2, .5, 1, 2, 5, 5.5, 6, 8, 10, 15, 30, 60, 120, 300, 1800, 7200}).WithLabelValues(),
		blocked: m.GaugeVec("blocked", "1 for each cause that holds up the deletion of a namespace: pods, finalizers, content, discovery, error, grace. At most 100 series; later ones are left out.",
			controller.Label{"namespace"}, controller.Label{"cause"}),
		causes: map[string][]string{},
	}
}

// showCauses replaces the causes of a namespace.
func (m *metrics) showCauses(namespace string, causes ...string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, cause := range m.causes[namespace] {
		m.blocked.DeleteLabelValues(namespace, cause)
	}
	m.series -= len(m.causes[namespace])
	causes = causes[:min(len(causes), maxSeries-m.series)]
	for _, cause := range causes {
		m.blocked.WithLabelValues(namespace, cause).Set(1)
	}
	m.series += len(causes)
	if m.causes[namespace] = causes; len(causes) == 0 {
		delete(m.causes, namespace)
	}
}

// reset removes all namespaces at the end of a term.
func (m *metrics) reset() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.blocked.Reset()
	m.causes, m.series = map[string][]string{}, 0
}
