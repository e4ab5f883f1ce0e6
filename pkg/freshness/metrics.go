package freshness

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of one Transport and Monitor. Their names begin with leadership_watch_, because they show why a leader stepped down.
type Metrics struct {
	reopened *prometheus.CounterVec // By resource and namespace, like the next four.
	idle     *prometheus.GaugeVec
	lag      *prometheus.GaugeVec
	stale    *prometheus.GaugeVec
	compared *prometheus.CounterVec
	lists    *prometheus.CounterVec // By form, too.
}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leadership_watch_" + name, Help: help}, append([]string{"resource", "namespace"}, labels...))
		reg.MustRegister(c)
		return c
	}
	gauges := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leadership_watch_" + name, Help: help}, []string{"resource", "namespace"})
		reg.MustRegister(g)
		return g
	}
	return &Metrics{
		reopened: counters("reopenings_total", "Watches that were closed here because the cache did not reach a known version."),
		idle:     gauges("idle_seconds", "Time since the last byte of any watch of a resource."),
		lag: gauges("lag_seconds", "Time since the cache of a resource first missed the version of a list. Up to 60 s are normal, and 0 means that no version is missed. "+
			"While lists fail, time since the last list for which the watch was silent."),
		stale:    gauges("stale", "1 while the cache of a resource differs from a consistent list."),
		compared: counters("comparisons_total", "Comparisons of the cache of a resource with a whole list."),
		lists:    counters("lists_total", "Lists of a whole resource that fill its cache, as a stream or, as the fallback, in pages.", "form"),
	}
}

// initialize creates the series of one watch.
func (m *Metrics) initialize(target watchTarget) {
	m.reopened.WithLabelValues(target.labels()...)
	m.idle.WithLabelValues(target.labels()...)
	m.lag.WithLabelValues(target.labels()...)
	m.stale.WithLabelValues(target.labels()...)
	m.compared.WithLabelValues(target.labels()...)
	for _, form := range []string{listStreamed, listPaged} {
		m.lists.WithLabelValues(append(target.labels(), form)...)
	}
}

// forget drops the series of a resource without a monitor.
func (m *Metrics) forget(resource string) {
	m.reopened.DeletePartialMatch(prometheus.Labels{"resource": resource})
}

// Values of the label form.
const (
	listStreamed = "stream"
	listPaged    = "pages"
)
