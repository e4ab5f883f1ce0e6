package controller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"minikcm/internal/fakeapi"
)

func TestLabelValuesExistFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := Metrics{reg}
	m.CounterVec("a_total", "help", Label{"verb", "create", "delete"}, Label{"outcome", "done", "failed"})
	m.CounterVec("b_total", "help", Label{"verb", "create"}, Label{"namespace"}) // no values yet
	m.GaugeFunc("d", "help", func() float64 { return 7 })
	m.HistogramVec("e", "help", []float64{1})
	families := fakeapi.Must(reg.Gather())
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	fakeapi.WantEqual(t, "series", series, map[string]int{"a_total": 4, "d": 1, "e": 1})
}
