package leadership

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of one Fence, Elector, Streams and Liveness.
type Metrics struct {
	term       prometheus.Gauge
	renewalAge prometheus.GaugeFunc
	lease      prometheus.Gauge
	takeovers  *prometheus.HistogramVec // by cause
	ended      *prometheus.CounterVec   // by reason

	refusals  *prometheus.CounterVec // by verb
	cuts      *prometheus.CounterVec // by verb
	unknown   *prometheus.CounterVec // by verb
	inFlight  prometheus.Gauge
	atRelease prometheus.Gauge

	reopened *prometheus.CounterVec // by resource and namespace, as the two below
	silence  *prometheus.GaugeVec
	stale    *prometheus.GaugeVec

	age atomic.Pointer[func() float64] // of the last renewal; set by the elector
}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := newMetrics()
	reg.MustRegister(m.term, m.renewalAge, m.lease, m.takeovers, m.ended, m.refusals, m.cuts, m.unknown, m.inFlight, m.atRelease,
		m.reopened, m.silence, m.stale)
	return m
}

// newMetrics builds the metrics without registering them.
func newMetrics() *Metrics {
	m := &Metrics{
		term:  gauge("term_number", "Terms this process has begun; the number of the running or last one."),
		lease: gauge("lease_duration_seconds", "For how long this process last renewed the lease; 0 while not leading. It is longer than configured while writes are slow."),
		takeovers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadership_takeover_duration_seconds",
			Help: "Time from the moment the lease was free, as seen here, to the start of the term, by how it became free.",
			// a hand-over takes milliseconds, a retry period a few seconds, a lease some more
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 15, 60},
		}, []string{"cause"}),
		ended:     counters("terms_ended_total", "Terms that ended, by reason.", "reason"),
		refusals:  counters("fence_refusals_total", "Requests refused because they belonged to no running term.", "verb"),
		cuts:      counters("fence_cuts_total", "Requests cut in flight because their term ended hard.", "verb"),
		unknown:   counters("fence_unknown_outcomes_total", "Writes that ended without an answer that tells whether they were done.", "verb"),
		inFlight:  gauge("fence_in_flight_requests", "Requests of controllers in flight."),
		atRelease: gauge("fence_in_flight_requests_at_release", "Requests of controllers still in flight when this process last gave the lease away. More than 0 is a defect."),
		reopened:  counters("watch_reopenings_total", "Watches closed here because they were silent.", "resource", "namespace"),
		silence:   gauges("watch_silence_seconds", "Time since the last byte of the watch of a resource.", "resource", "namespace"),
		stale:     gauges("watch_stale", "1 while the cache of a resource misses what a consistent list shows.", "resource", "namespace"),
	}
	m.renewalAge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadership_last_renewal_age_seconds",
		Help: "Time since the last successful renewal was sent; 0 while not leading.",
	}, func() float64 {
		if age := m.age.Load(); age != nil {
			return (*age)()
		}
		return 0
	})
	m.initialise()
	return m
}

// initialise makes every known series exist, so that a rate is right from the first scrape.
func (m *Metrics) initialise() {
	for _, cause := range []Cause{CauseInitial, CauseReleased, CauseExpired, CauseReacquired} {
		m.takeovers.WithLabelValues(string(cause))
	}
	for _, end := range []endReason{endLost, endShutdown, endStepDown, endFailed} {
		m.ended.WithLabelValues(string(end))
	}
	for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		m.refusals.WithLabelValues(verb)
		m.cuts.WithLabelValues(verb)
		if mutates(verb) {
			m.unknown.WithLabelValues(verb)
		}
	}
}

// watching makes the series of one watch exist.
func (m *Metrics) watching(target watchTarget) {
	m.reopened.WithLabelValues(target.labels()...)
	m.silence.WithLabelValues(target.labels()...)
	m.stale.WithLabelValues(target.labels()...)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "leadership_" + name, Help: help})
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leadership_" + name, Help: help}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leadership_" + name, Help: help}, labels)
}
