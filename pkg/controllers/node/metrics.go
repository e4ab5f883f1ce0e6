package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"minikcm/pkg/controller"
)

// Values of the cause label: the reason why a node did not become Unknown at the end of its grace period.
const (
	suppressedOutage     = "api_outage"  // the API server is unreachable
	suppressedReadFailed = "read_failed" // the live read of the Lease or the node failed
	suppressedAlive      = "node_alive"  // the live read showed a heartbeat
)

// metrics holds the metrics of kube-controller-manager up to updateSeconds, and further metrics.
type metrics struct {
	zoneHealth    *prometheus.GaugeVec
	zoneSize      *prometheus.GaugeVec
	zoneUnhealthy *prometheus.GaugeVec
	evictions     *prometheus.CounterVec
	updateSeconds prometheus.Observer

	zoneState  *prometheus.GaugeVec
	pending    *prometheus.GaugeVec
	suppressed *prometheus.CounterVec
	suspended  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("node_collector_", reg)}
	zone := controller.Label{"zone"}
	return &metrics{
		zoneHealth:    m.GaugeVec("zone_health", "Ready nodes per 100 nodes that count in the zone.", zone),
		zoneSize:      m.GaugeVec("zone_size", "Nodes that count in the zone.", zone),
		zoneUnhealthy: m.GaugeVec("unhealthy_nodes_in_zone", "Nodes that count in the zone and are not Ready.", zone),
		evictions:     m.CounterVec("evictions_total", "Nodes given a NoExecute taint because they are not Ready.", zone),
		updateSeconds: m.HistogramVec("update_node_health_duration_seconds", "Duration of one sync of one node.",
			prometheus.ExponentialBuckets(0.001, 4, 8)).WithLabelValues(),
		zoneState: m.GaugeVec("zone_state", "1 for the state the zone is in.", zone, controller.Label{"state"}),
		pending:   m.GaugeVec("pending_taints", "Nodes waiting for a NoExecute taint because of their zone's rate.", zone),
		suppressed: m.CounterVec("skipped_health_updates_total",
			"Times a node's grace period ended without the node being set to Unknown, by cause: api_outage, read_failed, node_alive.",
			controller.Label{"cause", suppressedOutage, suppressedReadFailed, suppressedAlive}),
		suspended: m.GaugeVec("suspended", "1 while the API server is unreachable, so that silent nodes stay as they are.").WithLabelValues(),
	}
}

// reset clears the gauges at the end of a term, so that only the leader shows zones.
func (m *metrics) reset() {
	for _, gauge := range []*prometheus.GaugeVec{m.zoneHealth, m.zoneSize, m.zoneUnhealthy, m.zoneState, m.pending} {
		gauge.Reset()
	}
	m.suspended.Set(0)
}

// setZone sets the gauges of a zone. An empty zone shows as healthy.
func (m *metrics) setZone(key string, t tally, s zoneState) {
	health := 100.0
	if t.size() > 0 {
		health = 100 * float64(t.ready) / float64(t.size())
	}
	m.zoneHealth.WithLabelValues(key).Set(health)
	m.zoneSize.WithLabelValues(key).Set(float64(t.size()))
	m.zoneUnhealthy.WithLabelValues(key).Set(float64(t.notReady))
	for _, state := range zoneStates {
		m.zoneState.WithLabelValues(key, string(state)).Set(gaugeValue(state == s))
	}
}

func gaugeValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
