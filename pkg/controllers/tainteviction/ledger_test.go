package tainteviction

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestLedger(t *testing.T) {
	pending := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pending"})
	l := newLedger(pending)
	for _, step := range []struct {
		name    string
		do      func() any
		want    any
		pending float64
	}{
		{"first sight", func() any { return l.observe("u", at(1)).seen }, at(1), 0},
		{"second sight", func() any { return l.observe("u", at(2)).seen }, at(1), 0},
		{"deadline", func() any { l.setDue("u", at(9)); return nil }, nil, 1},
		{"another deadline", func() any { l.setDue("u", at(5)); return nil }, nil, 1},
		{"another pod", func() any { l.setDue("v", at(5)); return nil }, nil, 2},
		{"begun", func() any { return l.setStarted("u") }, true, 2},
		{"begun again", func() any { return l.setStarted("u") }, false, 2},
		{"called off", func() any { return l.drop("v").isPending() }, true, 1},
		{"called off twice", func() any { return l.drop("v").isPending() }, false, 1},
		{"deleted", func() any { l.setDeleted("u"); return l.observe("u", at(3)).deleted }, true, 0},
		{"gone", func() any { return l.drop("u").isPending() }, false, 0},
	} {
		if got := step.do(); got != step.want {
			t.Errorf("%s: got %v, want %v", step.name, got, step.want)
		}
		if got := testutil.ToFloat64(pending); got != step.pending {
			t.Errorf("%s: %v pending, want %v", step.name, got, step.pending)
		}
	}
}
