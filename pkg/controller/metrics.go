package controller

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// QueueMetrics marks the registerer of a process that has set client-go's workqueue metrics provider, which
// is global. Package command sets it. With any other registerer a queue has no workqueue metrics.
type QueueMetrics struct{ prometheus.Registerer }

// Metrics creates metrics and registers them. The registerer may add a prefix or labels.
type Metrics struct{ prometheus.Registerer }

// Label is the name of a label, followed by the values that exist from the start.
type Label []string

// CounterVec returns new counters. Every combination of the given label values starts at zero.
func (m Metrics) CounterVec(name, help string, labels ...Label) *prometheus.CounterVec {
	vec := promauto.With(m).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labelNames(labels))
	forEachCombination(labels, nil, func(values []string) { vec.WithLabelValues(values...) })
	return vec
}

// GaugeVec returns new gauges. None has a value at the start.
func (m Metrics) GaugeVec(name, help string, labels ...Label) *prometheus.GaugeVec {
	return promauto.With(m).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labelNames(labels))
}

// GaugeFunc registers a gauge whose value is computed when it is scraped.
func (m Metrics) GaugeFunc(name, help string, value func() float64) {
	promauto.With(m).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// HistogramVec returns new histograms. Every combination of the given label values exists from the start.
func (m Metrics) HistogramVec(name, help string, buckets []float64, labels ...Label) *prometheus.HistogramVec {
	vec := promauto.With(m).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labelNames(labels))
	forEachCombination(labels, nil, func(values []string) { vec.WithLabelValues(values...) })
	return vec
}

func labelNames(labels []Label) (names []string) {
	for _, label := range labels {
		names = append(names, label[0])
	}
	return names
}

func forEachCombination(labels []Label, values []string, visit func([]string)) {
	if len(labels) == 0 {
		visit(values)
		return
	}
	for _, value := range labels[0][1:] {
		forEachCombination(labels[1:], append(values, value), visit)
	}
}

// resultLabel returns the value of the label result. An error wins over a requeue.
func resultLabel(result Result, err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case err != nil:
		return "error"
	case result.RequeueAfter > 0:
		return "requeue"
	}
	return "done"
}
