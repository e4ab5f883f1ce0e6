package deployment

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
)

// Reasons for a live read besides those of package controller.
const (
	readNameTaken = "name_taken" // a ReplicaSet has the name of the new one
	readRejected  = "refused"    // a change was rejected, or its outcome is unknown
	readAdopt     = "adopt"      // before an adoption
)

type metrics struct {
	liveReads *prometheus.CounterVec // reason
	deferred  *prometheus.CounterVec // reason
}

func newMetrics(reg prometheus.Registerer, states *states, c clock.PassiveClock) *metrics {
	m := controller.Metrics{Registerer: reg, Subsystem: "deployment_controller"}
	m.GaugeFunc("longest_stalled_rollout_seconds", "Longest time that any rollout has made no progress, beyond its minReadySeconds.",
		func() float64 { return longestStalled(states, c.Now()).Seconds() })
	return &metrics{
		liveReads: m.CounterVec("live_reads_total", "Reads of the API server instead of the caches, by reason.",
			controller.Label{"reason", controller.ReadFirstWrite, controller.ReadOverdue, readNameTaken, readRejected, readAdopt}),
		deferred: m.CounterVec("deferred_syncs_total", "Syncs that left part of their work for later, by reason.",
			controller.Label{"reason", string(deferShrinkUnseen), string(deferShrinking), string(deferPodsDiffer), string(deferOldPods),
				string(deferCreateBackoff), string(deferResizeBackoff), string(deferResizeUnknown), string(deferTerminating)}),
	}
}
