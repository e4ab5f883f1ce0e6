//go:build tools

// Package prometheus pins the programs that test what deploy/ gives to Prometheus.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
