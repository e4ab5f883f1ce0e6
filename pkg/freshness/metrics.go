package freshness

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of one Transport and Monitor. Their names begin with leadership_watch_: they tell why a leader stepped down.
type Metrics struct {
	reopened *prometheus.CounterVec // by resource and namespace, as those below
	silence  *prometheus.GaugeVec
	behind   *prometheus.GaugeVec
	stale    *prometheus.GaugeVec
	compared *prometheus.CounterVec // and by how
	lists    *prometheus.CounterVec // and by form
}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		reopened: counters("watch_reopenings_total", "Watches closed here because they did not deliver what was there.", "resource", "namespace"),
		silence:  gauges("watch_idle_seconds", "Time since the last byte of any watch of a resource.", "resource", "namespace"),
		behind: gauges("watch_lag_seconds", "For how long the cache of a resource has not reached a version that a list has had, and was not found equal either; "+
			"up to 60 s are normal, and 0 if it has them all. Without an answer to lists, for how long its watch has been silent since the last one.", "resource", "namespace"),
		stale:    gauges("watch_stale", "1 while the cache of a resource misses what a consistent list shows.", "resource", "namespace"),
		compared: counters("watch_comparisons_total", "Times the cache of a resource was compared, with what a short watch showed or with a whole list.", "resource", "namespace", "with"),
		lists:    counters("watch_lists_total", "Times everything of a resource was asked for to fill its cache, as a stream or, which is the fallback, in pages.", "resource", "namespace", "form"),
	}
	reg.MustRegister(m.reopened, m.silence, m.behind, m.stale, m.compared, m.lists)
	return m
}

// watching makes the series of one watch exist.
func (m *Metrics) watching(target watchTarget) {
	m.reopened.WithLabelValues(target.labels()...)
	m.silence.WithLabelValues(target.labels()...)
	m.behind.WithLabelValues(target.labels()...)
	m.stale.WithLabelValues(target.labels()...)
	for _, with := range []string{comparedRecent, comparedWhole} {
		m.compared.WithLabelValues(append(target.labels(), with)...)
	}
	for _, form := range []string{listStreamed, listPaged} {
		m.lists.WithLabelValues(append(target.labels(), form)...)
	}
}

// forget drops the series of a resource that no monitor watches over.
func (m *Metrics) forget(resource string) {
	m.reopened.DeletePartialMatch(prometheus.Labels{"resource": resource})
}

// Values of labels.
const (
	comparedRecent = "watch"
	comparedWhole  = "list"
	listStreamed   = "stream"
	listPaged      = "pages"
)

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leadership_" + name, Help: help}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leadership_" + name, Help: help}, labels)
}
