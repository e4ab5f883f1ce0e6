package leadership

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the metrics of one Fence and one Elector.
type Metrics struct {
	auto promauto.Factory

	master        *prometheus.GaugeVec   // by name of the lease
	slowpath      *prometheus.CounterVec // by name of the lease
	lease         prometheus.Gauge
	takeovers     *prometheus.HistogramVec // by cause
	ended         *prometheus.CounterVec   // by reason
	refusals      *prometheus.CounterVec   // by verb
	cuts          *prometheus.CounterVec   // by verb
	unknownWrites prometheus.Gauge
}

// NewMetrics registers the metrics with reg. New adds two that read the Elector. Every
// known series exists from the start, so that rates are right from the first scrape.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	counters := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &Metrics{
		auto: auto,
		// The names of client-go v0.37 (component-base, metrics/prometheus/clientgo/leaderelection).
		master: auto.NewGaugeVec(prometheus.GaugeOpts{Name: "leader_election_master_status",
			Help: "1 while this process holds and renews the lease, 0 while it does not."}, []string{"name"}),
		slowpath: counters("leader_election_slowpath_total", "Renewals of the lease that had to read it first.", "name"),
		lease: auto.NewGauge(prometheus.GaugeOpts{Name: "leadership_lease_duration_seconds",
			Help: "Duration of the last renewal of the lease; 0 while not leading. Longer than configured while writes are slow."}),
		takeovers: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadership_takeover_duration_seconds",
			Help: "Time from the moment the lease became free, as observed by this process, " +
				"to the start of the term, by cause: initial, released, expired, reacquired.",
			// A hand-over takes milliseconds, a retry period a few seconds, an expiry 15 s or more.
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 15, 60},
		}, []string{"cause"}),
		ended:    counters("leadership_terms_ended_total", "Terms that ended, by reason: lost, shutdown, step-down, failed.", "reason"),
		refusals: counters("leadership_fence_refusals_total", "Requests rejected because their term was over, or no term was running.", "verb"),
		cuts:     counters("leadership_fence_cuts_total", "Requests cancelled in flight because their term was lost or drained too long.", "verb"),
		unknownWrites: auto.NewGauge(prometheus.GaugeOpts{Name: "leadership_fence_unanswered_writes",
			Help: "Consecutive writes with unknown outcome; 0 after the next write with a known outcome."}),
	}
	for _, cause := range []Cause{CauseInitial, CauseReleased, CauseExpired, CauseReacquired} {
		m.takeovers.WithLabelValues(string(cause))
	}
	for _, end := range endReasons {
		m.ended.WithLabelValues(end)
	}
	for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		m.refusals.WithLabelValues(verb)
		m.cuts.WithLabelValues(verb)
	}
	return m
}

// registerElector registers the metrics that read the state of an Elector.
func (m *Metrics) registerElector(e *Elector) {
	m.auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadership_last_renewal_age_seconds",
		Help: "Time since the last successful renewal was sent; 0 while not leading.",
	}, func() float64 { return e.renewalAge().Seconds() })
	m.auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadership_sole_candidate",
		Help: "1 for 20 lease durations after a step-down in which no other replica took the lease: further step-downs are ignored.",
	}, func() float64 {
		e.lock.Lock()
		defer e.lock.Unlock()
		if e.clock.Now().Before(e.stepDownIgnoredUntil) {
			return 1
		}
		return 0
	})
	if e.lease != nil {
		m.master.WithLabelValues(e.cfg.Name)
		m.slowpath.WithLabelValues(e.cfg.Name)
	}
}
