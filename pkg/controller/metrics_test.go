package controller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"minikcm/internal/fakeapi"
)

// count returns how often a histogram was observed.
func count(t *testing.T, o prometheus.Observer) uint64 {
	t.Helper()
	var m dto.Metric
	fakeapi.NoError(t, o.(prometheus.Metric).Write(&m))
	return m.GetHistogram().GetSampleCount()
}

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
