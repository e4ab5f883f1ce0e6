package garbagecollector

import (
	"github.com/prometheus/client_golang/prometheus"

	"minikcm/pkg/controller"
)

type metrics struct {
	syncErrors prometheus.Counter
	requests   *prometheus.CounterVec
	dryRun     *prometheus.CounterVec
	lasting    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("garbagecollector_", reg)}
	purposes := controller.Label{"request", requestDelete, requestRelease, requestOrphan, requestUnblock, requestFinalize}
	results := controller.Label{"outcome", string(done), string(gone), string(conflict), string(invalid), string(rejected), string(failed)}
	return &metrics{
		syncErrors: m.CounterVec("controller_resources_sync_error_total", "Failed discoveries, and failed lists and watches of a type.").WithLabelValues(),
		requests:   m.CounterVec("requests_total", "Writes, by purpose (delete, release, orphan, unblock, finalize) and result (done, gone, conflict, invalid, rejected, failed).", purposes, results),
		dryRun:     m.CounterVec("dry_run_request_total", "Writes that --garbage-collector-dry-run did not send, repetitions included, by purpose.", purposes),
		lasting: m.CounterVec("dry_run_remove_lasting_total",
			"Objects that --garbage-collector-dry-run did not delete and that still exist a minute later. Another collector should have deleted each of these objects.").WithLabelValues(),
	}
}

// causes are the values of the label of garbagecollector_blocked_objects.
var causes = [...]string{
	string(causeFinalizers), string(causeDependents), string(causeNotRemoved), string(causeUnlistedType), string(causeReferences),
	string(causeRejected), string(causeFailed), string(causeBusy),
	string(unparsableVersion), string(outOfScope), string(undiscovered), string(unknownKind), string(unservedVersion), string(ambiguousKind), string(unusableName),
	"syncing", string(refused), string(unnamed404), string(unavailable), "unconfirmed",
}

// gauges is a collector of the state of a controller.
type gauges struct{ *Controller }

// Describe implements prometheus.Collector. It sends no description, because the labels of types vary.
func (g gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64, labels prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("garbagecollector_"+name, help, nil, labels), prometheus.GaugeValue, value)
	}
	count, longest := g.state.counts(g.Clock.Now())
	gauge("longest_blocked_owner_seconds", "Longest time for which the number of dependents that block an owner has not changed; 0 if no owner is blocked.", longest.Seconds(), nil)
	for _, cause := range causes {
		gauge("blocked_objects", "Owners whose deletion is blocked, and objects that are kept because the state of an owner is unknown or a request was rejected or has failed, by cause.",
			float64(count[cause]), prometheus.Labels{"cause": cause})
	}
	for _, t := range g.types.allStates() {
		if t.err != nil {
			gauge("type_failing", "1 for each type whose objects cannot be listed or watched.", 1, prometheus.Labels{"group": t.Group, "resource": t.Resource})
		}
	}
}
