package namespace

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries bounds each of the two gauges with a label per namespace: what does not fit is not shown.
const maxSeries = 100

type metrics struct {
	duration  prometheus.Histogram
	remaining *namespaceGauge
	blocked   *namespaceGauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "namespace_deletion_duration_seconds",
			Help:    "From this process seeing the deletion of a namespace until its content was gone and it was finalized.",
			Buckets: []float64{.1, .2, .5, 1, 2, 5, 5.5, 6, 8, 10, 15, 30, 60, 120, 300, 1800, 7200},
		}),
		remaining: newNamespaceGauge("namespace_deletion_remaining_resources",
			"Objects left in a namespace that is being deleted. At most 100 series; later ones are left out.", "group", "resource"),
		blocked: newNamespaceGauge("namespace_deletion_blocked",
			"1 for each cause that holds up the deletion of a namespace. At most 100 series; later ones are left out.", "cause"),
	}
	reg.MustRegister(m.duration, m.remaining.vec, m.blocked.vec)
	return m
}

// show replaces what is shown of a namespace. An empty report without causes clears it.
func (m *metrics) show(namespace string, r report, causes []string) {
	remaining := map[[2]string]float64{}
	for _, o := range r.held() {
		remaining[[2]string{o.resource.Group, o.resource.Resource}] = float64(o.remaining)
	}
	blocked := map[[2]string]float64{}
	for _, cause := range causes {
		blocked[[2]string{cause}] = 1
	}
	m.remaining.replace(namespace, remaining)
	m.blocked.replace(namespace, blocked)
}

func (m *metrics) clear(namespace string) { m.show(namespace, report{}, nil) }

// finished counts a namespace that took d.
func (m *metrics) finished(d time.Duration) { m.duration.Observe(d.Seconds()) }

// reset forgets all namespaces at the end of a term.
func (m *metrics) reset() {
	m.remaining.reset()
	m.blocked.reset()
}

// namespaceGauge is a gauge with the label namespace and up to two more, and a bound on its series.
type namespaceGauge struct {
	vec    *prometheus.GaugeVec
	labels int // besides namespace

	lock  sync.Mutex
	shown map[string][][2]string // by namespace: the values of the other labels
	total int
}

func newNamespaceGauge(name, help string, labels ...string) *namespaceGauge {
	return &namespaceGauge{
		vec:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"namespace"}, labels...)),
		labels: len(labels),
		shown:  map[string][][2]string{},
	}
}

func (g *namespaceGauge) replace(namespace string, values map[[2]string]float64) {
	g.lock.Lock()
	defer g.lock.Unlock()
	var kept [][2]string
	for _, key := range g.shown[namespace] {
		if _, stays := values[key]; stays {
			kept = append(kept, key)
		} else {
			g.vec.DeleteLabelValues(g.with(namespace, key)...)
		}
	}
	g.total -= len(g.shown[namespace]) - len(kept)
	for key, value := range values {
		if !slices.Contains(kept, key) {
			if g.total >= maxSeries {
				continue
			}
			kept, g.total = append(kept, key), g.total+1
		}
		g.vec.WithLabelValues(g.with(namespace, key)...).Set(value)
	}
	if g.shown[namespace] = kept; len(kept) == 0 {
		delete(g.shown, namespace)
	}
}

func (g *namespaceGauge) with(namespace string, key [2]string) []string {
	return append([]string{namespace}, key[:g.labels]...)
}

func (g *namespaceGauge) reset() {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.vec.Reset()
	clear(g.shown)
	g.total = 0
}
