package replicaset

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

const subsystem = "replicaset_controller" // as upstream

// Reasons for a live read.
const (
	readFirstWrite = "first_write" // before the first create, delete or status with other numbers for a key in a term
	readOverdue    = "overdue"     // the caches did not come to show our own writes
	readUnanswered = "unanswered"  // a delete that was not answered can no longer be carried out, and its pod is wanted again
)

// The fate of a write whose answer was lost.
const (
	fateConfirmed = "confirmed"
	fateAbsent    = "absent"
)

type metrics struct {
	deletionAgeRatio prometheus.Histogram
	staleSkips       *prometheus.CounterVec // group, resource
	barrierWait      prometheus.Histogram
	liveReads        *prometheus.CounterVec // reason
	lostAnswers      *prometheus.CounterVec // verb, fate
}

func newMetrics(reg prometheus.Registerer, l *memories, c clock.PassiveClock) *metrics {
	m := &metrics{
		deletionAgeRatio: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "sorting_deletion_age_ratio",
			Help:    "Age of each ready pod chosen for deletion, as a multiple of the age of the youngest ready pod of its ReplicaSet.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 6),
		}),
		staleSkips: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "stale_sync_skips_total",
			Help: "Syncs postponed because a cache did not show our own writes yet.",
		}, []string{"group", "resource"}),
		barrierWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: "barrier_wait_seconds",
			Help:    "How long a ReplicaSet waited for the caches to show our own writes.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 30},
		}),
		liveReads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "live_reads_total",
			Help: "Syncs decided on a consistent read of the API server instead of the caches.",
		}, []string{"reason"}),
		lostAnswers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "unknown_outcomes_total",
			Help: "Creates and deletes whose answer was lost, by what was found out about them later.",
		}, []string{"verb", "outcome"}),
	}
	m.staleSkips.WithLabelValues("", "pods")
	m.staleSkips.WithLabelValues("apps", "replicasets")
	for _, reason := range []string{readFirstWrite, readOverdue, readUnanswered} {
		m.liveReads.WithLabelValues(reason)
	}
	for _, verb := range []string{"create", "delete"} {
		m.lostAnswers.WithLabelValues(verb, fateConfirmed)
		m.lostAnswers.WithLabelValues(verb, fateAbsent)
	}
	unanswered := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "unanswered_creates",
		Help: "Creates whose answer was lost and which may still be carried out.",
	}, func() float64 { return float64(l.unanswered(c.Now())) })
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "longest_mismatch_seconds",
		Help: "How long the longest-waiting ReplicaSet has been without the number of pods it wants, terminating namespaces excepted.",
	}, func() float64 { return l.oldestUnmet(c.Now()).Seconds() })
	reg.MustRegister(m.deletionAgeRatio, m.staleSkips, m.barrierWait, m.liveReads, m.lostAnswers, unanswered, oldest)
	return m
}

func (m *metrics) resolved(found lostAnswers) {
	if found.created > 0 {
		m.lostAnswers.WithLabelValues("create", fateConfirmed).Add(float64(found.created))
	}
	if found.deleted > 0 {
		m.lostAnswers.WithLabelValues("delete", fateConfirmed).Add(float64(found.deleted))
	}
	if found.undone > 0 {
		m.lostAnswers.WithLabelValues("delete", fateAbsent).Add(float64(found.undone))
	}
}

func (m *metrics) skipped(missing []schema.GroupResource) {
	for _, r := range missing {
		m.staleSkips.WithLabelValues(r.Group, r.Resource).Inc()
	}
}
