package controller

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the result label.
const (
	resultDone     = "done"     // nothing left to do until the next event
	resultRequeue  = "requeue"  // done, and will look again by itself
	resultError    = "error"    // will be retried with back-off
	resultCanceled = "canceled" // cut short by the end of the term
)

// QueueMetrics marks the registerer of a process that has set client-go's workqueue metrics provider, of which there is one for all queues of a
// process; package command does so. A loop that is given any other registerer has a queue without workqueue metrics.
type QueueMetrics struct{ prometheus.Registerer }

type metrics struct {
	seconds *prometheus.HistogramVec
	panics  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, controller, queue string) *metrics {
	labels := prometheus.Labels{"controller": controller, "queue": queue}
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:        "controller_sync_duration_seconds",
			Help:        "How long one sync of one key took, by its result.",
			ConstLabels: labels,
			Buckets:     []float64{.0005, .001, .005, .01, .05, .1, .5, 1, 5, 30, 120},
		}, []string{"result"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name:        "controller_sync_panics_total",
			Help:        "Syncs that panicked; their keys were retried.",
			ConstLabels: labels,
		}),
	}
	for _, r := range []string{resultDone, resultRequeue, resultError, resultCanceled} {
		m.seconds.WithLabelValues(r)
	}
	reg.MustRegister(m.seconds, m.panics)
	return m
}

func (m *metrics) observe(result Result, err error, d time.Duration) {
	label := resultDone
	switch {
	case errors.Is(err, context.Canceled):
		label = resultCanceled
	case err != nil:
		label = resultError
	case result.RequeueAfter > 0:
		label = resultRequeue
	}
	m.seconds.WithLabelValues(label).Observe(d.Seconds())
}
