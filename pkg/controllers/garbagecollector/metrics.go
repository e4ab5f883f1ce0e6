package garbagecollector

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type metrics struct {
	syncErrors prometheus.Counter
	removed    *prometheus.CounterVec
	latency    prometheus.Histogram
	released   prometheus.Counter
	requests   *prometheus.CounterVec
	dryRun     *prometheus.CounterVec
	lasting    prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		syncErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "garbagecollector_controller_resources_sync_error_total",
			Help: "Failed discoveries, and failed lists and watches of a type.",
		}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "garbagecollector_removed_total", Help: "Objects deleted because their owners are gone or wait for them, by propagation policy.",
		}, []string{"policy"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "garbagecollector_owner_to_removed_seconds",
			Help:    "From this process seeing the deletion of an owner until the API server has accepted that of a dependent.",
			Buckets: []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 1800},
		}),
		released: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "garbagecollector_released_total", Help: "Objects that lost references to owners that are gone, because another owner lives.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "garbagecollector_requests_total", Help: "Writes, by what they were for and what came of them.",
		}, []string{"request", "outcome"}),
		dryRun: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "garbagecollector_dry_run_request_total", Help: "Writes that --garbage-collector-dry-run did not send, repetitions included, by purpose.",
		}, []string{"request"}),
		lasting: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "garbagecollector_dry_run_remove_lasting_total",
			Help: "Objects that --garbage-collector-dry-run did not delete and that still exist a minute later. Another collector should have deleted each of these objects.",
		}),
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		m.removed.WithLabelValues(string(policy))
	}
	for _, request := range []string{requestDelete, requestRelease, requestOrphan, requestUnblock, requestFinalize} {
		m.dryRun.WithLabelValues(request)
		for _, o := range []requestResult{done, gone, conflict, invalid, rejected, failed} {
			m.requests.WithLabelValues(request, string(o))
		}
	}
	reg.MustRegister(m.syncErrors, m.removed, m.latency, m.released, m.requests, m.dryRun, m.lasting)
	return m
}

// state is what is shown of the present, when somebody asks.
type state struct {
	controller *Controller
	waiting    *prometheus.Desc
	types      *prometheus.Desc
	failing    *prometheus.Desc
	objects    *prometheus.Desc
	standstill *prometheus.Desc
}

func newState(c *Controller) *state {
	return &state{
		controller: c,
		waiting: prometheus.NewDesc("garbagecollector_blocked_objects",
			"Owners that are held in their deletion, and objects that are kept because nothing is known of an owner or a request about them was rejected, by cause.", []string{"cause"}, nil),
		types:   prometheus.NewDesc("garbagecollector_types", "Types, by how far their feed has come.", []string{"state"}, nil),
		failing: prometheus.NewDesc("garbagecollector_type_failing", "1 for each type whose objects cannot be listed or watched.", []string{"group", "resource"}, nil),
		objects: prometheus.NewDesc("garbagecollector_objects", "Objects in the graph.", nil, nil),
		standstill: prometheus.NewDesc("garbagecollector_longest_blocked_owner_seconds",
			"Longest time for which an owner that is being deleted has been held by the same number of dependents; 0 if none is held.", nil, nil),
	}
}

// causes are the values of the label of garbagecollector_blocked_objects.
var causes = [...]string{
	string(causeFinalizers), string(causeDependents), string(causeNotRemoved), string(causeUnseenType), string(causeReferences),
	string(causeRejected), string(causeFailed), string(causeBusy),
	string(unparsable), string(outOfReach), string(undiscovered), string(unserved), string(otherVersion), string(ambiguous), string(unusable),
	"syncing", string(refused), string(unnamed404), string(unavailable), "unconfirmed", "slow",
}

// Describe implements prometheus.Collector.
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	ch <- s.waiting
	ch <- s.types
	ch <- s.failing
	ch <- s.objects
	ch <- s.standstill
}

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	count, standstill := s.controller.memories.counts(s.controller.deps.Clock.Now())
	ch <- prometheus.MustNewConstMetric(s.standstill, prometheus.GaugeValue, standstill.Seconds())
	for _, cause := range causes {
		ch <- prometheus.MustNewConstMetric(s.waiting, prometheus.GaugeValue, float64(count[cause]), cause)
	}
	phases := map[phase]int{listing: 0, current: 0, away: 0}
	objects := 0
	for _, t := range s.controller.types.states() {
		if !t.watched {
			continue
		}
		phases[t.phase]++
		objects += t.objects()
		if t.err != nil {
			ch <- prometheus.MustNewConstMetric(s.failing, prometheus.GaugeValue, 1, t.Group, t.Resource)
		}
	}
	for p, n := range phases {
		ch <- prometheus.MustNewConstMetric(s.types, prometheus.GaugeValue, float64(n), string(p))
	}
	ch <- prometheus.MustNewConstMetric(s.objects, prometheus.GaugeValue, float64(objects))
}
