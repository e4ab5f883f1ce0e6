package leadership

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of one Fence and Elector.
type Metrics struct {
	master     *prometheus.GaugeVec   // by name of the lease
	slowpath   *prometheus.CounterVec // by name of the lease
	renewalAge prometheus.GaugeFunc
	lease      prometheus.Gauge
	takeovers  *prometheus.HistogramVec // by cause
	ended      *prometheus.CounterVec   // by reason

	refusals   *prometheus.CounterVec // by verb
	cuts       *prometheus.CounterVec // by verb
	unanswered prometheus.Gauge
	alone      prometheus.GaugeFunc

	age     atomic.Pointer[func() float64] // of the last renewal; set by the elector, as the next
	isAlone atomic.Pointer[func() bool]
}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := newMetrics()
	reg.MustRegister(m.master, m.slowpath, m.renewalAge, m.lease, m.takeovers, m.ended, m.refusals, m.cuts, m.unanswered, m.alone)
	return m
}

// newMetrics builds the metrics without registering them.
func newMetrics() *Metrics {
	m := &Metrics{
		// the names of client-go v0.37 (component-base, metrics/prometheus/clientgo/leaderelection)
		master: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "leader_election_master_status",
			Help: "1 while this process holds and renews the lease, 0 while it does not."}, []string{"name"}),
		slowpath: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leader_election_slowpath_total",
			Help: "Renewals of the lease that had to read it first."}, []string{"name"}),
		lease: gauge("lease_duration_seconds", "For how long this process last renewed the lease; 0 while not leading. It is longer than configured while writes are slow."),
		takeovers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadership_takeover_duration_seconds",
			Help: "Time from the moment the lease was free, as seen here, to the start of the term, by how it became free.",
			// a hand-over takes milliseconds, a retry period a few seconds, a lease some more
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 15, 60},
		}, []string{"cause"}),
		ended:      counters("terms_ended_total", "Terms that ended, by reason.", "reason"),
		refusals:   counters("fence_refusals_total", "Requests refused because they belonged to no running term.", "verb"),
		cuts:       counters("fence_cuts_total", "Requests cut in flight because their term ended hard.", "verb"),
		unanswered: gauge("fence_unanswered_writes", "Writes in a row that ended without an answer that tells whether they were done; 0 after the next answered write."),
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
	m.alone = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadership_sole_candidate",
		Help: "1 while this process leads, or competes for the lease, though it stood aside of late: nobody else took the lease.",
	}, func() float64 {
		alone := m.isAlone.Load()
		return number(alone != nil && (*alone)())
	})
	m.initialise()
	return m
}

// contend makes the series of a lease exist.
func (m *Metrics) contend(lease string) {
	m.leads(lease, false)
	m.slowpath.WithLabelValues(lease)
}

// leads says whether this process holds and renews the lease of that name.
func (m *Metrics) leads(lease string, yes bool) { m.master.WithLabelValues(lease).Set(number(yes)) }

// slow counts a renewal that had to read the lease first.
func (m *Metrics) slow(lease string) { m.slowpath.WithLabelValues(lease).Inc() }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
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
	}
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "leadership_" + name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leadership_" + name, Help: help}, labels)
}
