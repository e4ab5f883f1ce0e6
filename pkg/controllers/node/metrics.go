package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Why a verdict was not passed on a node whose grace had ended; values of the cause label.
const (
	suppressedStale       = "stale_cache"     // the Lease cache is known to be behind
	suppressedBlind       = "blind_credit"    // requests failed of late, so silence proves nothing
	suppressedUnreachable = "api_unreachable" // the live read that must come before a verdict failed
	suppressedAlive       = "recheck_ok"      // the live read showed a sign of life
)

// metrics: the node_collector_ ones up to updateSeconds are kube-controller-manager's, the others are ours.
type metrics struct {
	zoneHealth    *prometheus.GaugeVec
	zoneSize      *prometheus.GaugeVec
	zoneUnhealthy *prometheus.GaugeVec
	evictions     *prometheus.CounterVec
	updateSeconds prometheus.Histogram

	zoneState  *prometheus.GaugeVec
	pending    *prometheus.GaugeVec
	suppressed *prometheus.CounterVec
	suspended  *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	zoneGauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"zone"}, more...))
	}
	m := &metrics{
		zoneHealth:    zoneGauge("node_collector_zone_health", "Ready nodes per 100 nodes that count in the zone."),
		zoneSize:      zoneGauge("node_collector_zone_size", "Nodes that count in the zone."),
		zoneUnhealthy: zoneGauge("node_collector_unhealthy_nodes_in_zone", "Nodes that count in the zone and are not Ready."),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_collector_evictions_total",
			Help: "Nodes given a NoExecute taint because they are not Ready.",
		}, []string{"zone"}),
		updateSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "node_collector_update_node_health_duration_seconds",
			Help:    "How long one look at one node took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		zoneState: zoneGauge("node_collector_zone_state", "1 for the state the zone is in.", "state"),
		pending:   zoneGauge("node_collector_pending_taints", "Nodes waiting for a NoExecute taint because of their zone's rate."),
		suppressed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_collector_skipped_health_updates_total",
			Help: "Times a node's grace period ended without the node being set to Unknown, by cause.",
		}, []string{"cause"}),
		suspended: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "node_collector_suspended",
			Help: "1 if silent nodes were not acted upon within the last second, by cause.",
		}, []string{"cause"}),
	}
	for _, c := range []string{suppressedStale, suppressedBlind, suppressedUnreachable, suppressedAlive} {
		m.suppressed.WithLabelValues(c)
	}
	m.suspend(nil)
	reg.MustRegister(m.zoneHealth, m.zoneSize, m.zoneUnhealthy, m.evictions, m.updateSeconds,
		m.zoneState, m.pending, m.suppressed, m.suspended)
	return m
}

// suspend shows the causes for which silent nodes were not acted upon of late; nil shows none.
func (m *metrics) suspend(causes map[cause]bool) {
	for _, c := range []cause{causeBlind, causeStale} {
		m.suspended.WithLabelValues(string(c)).Set(boolean(causes[c]))
	}
}

// reset puts the gauges into their state outside a term: they speak of what the leader knows, and with two managers it would count twice.
func (m *metrics) reset() {
	for _, gauge := range []*prometheus.GaugeVec{m.zoneHealth, m.zoneSize, m.zoneUnhealthy, m.zoneState, m.pending} {
		gauge.Reset()
	}
	m.suspend(nil)
}

// zone shows a zone. An empty one, which is about to be forgotten, shows as healthy.
func (m *metrics) zone(key string, t tally, s zoneState, pending int) {
	health := 100.0
	if t.size() > 0 {
		health = 100 * float64(t.ready) / float64(t.size())
	}
	m.zoneHealth.WithLabelValues(key).Set(health)
	m.zoneSize.WithLabelValues(key).Set(float64(t.size()))
	m.zoneUnhealthy.WithLabelValues(key).Set(float64(t.notReady))
	m.pending.WithLabelValues(key).Set(float64(pending))
	for _, state := range zoneStates {
		m.zoneState.WithLabelValues(key, string(state)).Set(boolean(state == s))
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
