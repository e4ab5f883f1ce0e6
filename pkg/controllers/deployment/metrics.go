package deployment

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

const subsystem = "deployment_controller"

// Reasons for a live read.
const (
	readFirstWrite = "first_write" // before the first write for a key in a term
	readOverdue    = "overdue"     // the caches did not come to show our own writes
	readNameTaken  = "name_taken"  // whose the ReplicaSet is that has the name of the new one
	readRefused    = "refused"     // whether a change of a ReplicaSet was refused, or came too late
	readAdopt      = "adopt"       // whether the Deployment is still there, before it adopts
)

// The fate of a write whose answer was lost.
const (
	fateConfirmed = "confirmed"
	fateAbsent    = "absent"
)

type metrics struct {
	liveReads   *prometheus.CounterVec // reason
	held        *prometheus.CounterVec // reason
	conflicts   prometheus.Counter
	lostAnswers *prometheus.CounterVec // verb, fate
}

func newMetrics(reg prometheus.Registerer, l *memories, c clock.PassiveClock) *metrics {
	m := &metrics{
		liveReads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "live_reads_total",
			Help: "Requests that read from the API server what the caches may not show, by why.",
		}, []string{"reason"}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "deferred_syncs_total",
			Help: "Syncs in which something that is wanted was not done yet, by why.",
		}, []string{"reason"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "resize_conflicts_total",
			Help: "Changes of ReplicaSets that were not made because somebody else had changed the spec.",
		}),
		lostAnswers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "unknown_outcomes_total",
			Help: "Creates and changes of ReplicaSets whose answer was lost, by what was found out about them later.",
		}, []string{"verb", "outcome"}),
	}
	for _, reason := range []string{readFirstWrite, readOverdue, readNameTaken, readRefused, readAdopt} {
		m.liveReads.WithLabelValues(reason)
	}
	for _, why := range []hold{holdShrinkUnseen, holdShrinking, holdPodsDiffer, holdOldPods,
		holdCreateBackoff, holdResizeBackoff, holdResizeUnanswered, holdTerminating} {
		m.held.WithLabelValues(string(why))
	}
	for _, verb := range []string{"create", "patch"} {
		m.lostAnswers.WithLabelValues(verb, fateConfirmed)
		m.lostAnswers.WithLabelValues(verb, fateAbsent)
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "oldest_unfinished_rollout_seconds",
		Help: "How long the rollout has gone on that takes longest, as far as this process has seen it; except while paused or deleted.",
	}, func() float64 { unfinished, _ := l.longest(c.Now()); return unfinished.Seconds() })
	stalled := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "longest_stalled_rollout_seconds",
		Help: "How long the rollout has not moved that has stood still longest, beyond its minReadySeconds: no other size, no pod more that is updated or available, no old one less.",
	}, func() float64 { _, stalled := l.longest(c.Now()); return stalled.Seconds() })
	reg.MustRegister(m.liveReads, m.held, m.conflicts, m.lostAnswers, oldest, stalled)
	return m
}

// lost counts writes that were not answered and turned out to have been made.
func (m *metrics) lost(verb string, made int) {
	if made > 0 {
		m.lostAnswers.WithLabelValues(verb, fateConfirmed).Add(float64(made))
	}
}
