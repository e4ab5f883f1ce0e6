package leadership

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of one Fence, Elector, Streams and Liveness.
type Metrics struct{}

// NewMetrics registers all metrics of this package with reg. Call it once per manager.
func NewMetrics(reg prometheus.Registerer) *Metrics { return &Metrics{} }
