package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// What one renewed Lease costs in a cluster of 5,000 nodes, decoding excluded.
func BenchmarkLeaseRenewal(b *testing.B) {
	c := &Controller{
		cfg: defaults(), clock: clock.RealClock{}, metrics: newMetrics(prometheus.NewRegistry()),
		health: newHealthMap(), visibility: newVisibility(time.Minute, time.Now()),
	}
	for i := range 5000 {
		c.health.node(aNode(fmt.Sprint("node-", i), "zone", corev1.ConditionTrue), time.Time{}, time.Now())
	}
	leases := aLease("node-17", time.Now())
	b.ReportAllocs()
	for b.Loop() {
		leases.Spec.RenewTime.Time = leases.Spec.RenewTime.Add(time.Second)
		c.observeLease(leases)
	}
}
