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

type metrics struct {
	liveReads *prometheus.CounterVec // reason
	held      *prometheus.CounterVec // reason
}

func newMetrics(reg prometheus.Registerer, l *memories, c clock.PassiveClock) *metrics {
	m := &metrics{
		liveReads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "live_reads_total",
			Help: "Reads of the API server instead of the caches, by reason.",
		}, []string{"reason"}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: subsystem, Name: "deferred_syncs_total",
			Help: "Syncs that left part of their work for later, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{readFirstWrite, readOverdue, readNameTaken, readRefused, readAdopt} {
		m.liveReads.WithLabelValues(reason)
	}
	for _, why := range []hold{holdShrinkUnseen, holdShrinking, holdPodsDiffer, holdOldPods,
		holdCreateBackoff, holdResizeBackoff, holdResizeUnanswered, holdTerminating} {
		m.held.WithLabelValues(string(why))
	}
	stalled := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Subsystem: subsystem, Name: "longest_stalled_rollout_seconds",
		Help: "Longest time that any rollout has made no progress, beyond its minReadySeconds.",
	}, func() float64 { return l.longestStalled(c.Now()).Seconds() })
	reg.MustRegister(m.liveReads, m.held, stalled)
	return m
}
