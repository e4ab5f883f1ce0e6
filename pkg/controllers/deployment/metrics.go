package deployment

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
)

type metrics struct {
	deferred *prometheus.CounterVec // by reason
}

func newMetrics(reg prometheus.Registerer, states *states, c clock.PassiveClock) *metrics {
	m := controller.Metrics{Registerer: prometheus.WrapRegistererWithPrefix("deployment_controller_", reg)}
	m.GaugeFunc("longest_stalled_rollout_seconds", "Longest time that any rollout has made no progress, beyond its minReadySeconds.",
		func() float64 { return longestStalled(states, c.Now()).Seconds() })
	return &metrics{
		deferred: m.CounterVec("deferred_syncs_total", "Syncs that left part of their work for later, by reason.",
			controller.Label{"reason", string(deferShrinkUnseen), string(deferShrinking), string(deferPodsDiffer), string(deferOldPods),
				string(deferCreateBackoff), string(deferResizeBackoff), string(deferResizeUnknown), string(deferTerminating)}),
	}
}
