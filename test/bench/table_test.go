package main

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	cow, goat  = contestant{name: "cow"}, contestant{name: "goat"}
	jumps      = metric{"jumps", "m"}
	eats       = metric{"eats", "kg"}
	farm       = scenario{name: "farm", contestants: []contestant{cow, goat}, peer: "goat"}
	alone      = scenario{name: "alone", contestants: []contestant{cow}}
	farmValues = func() *results {
		r := &results{}
		r.add(turn{scenario: farm, contestant: cow}, []reading{{jumps, 1}, {eats, 20}})
		r.add(turn{scenario: farm, contestant: goat}, []reading{{jumps, 4}, {eats, 0}})
		r.add(turn{scenario: farm, contestant: cow}, []reading{{jumps, 3}, {eats, 30}})
		r.add(turn{scenario: alone, contestant: cow}, []reading{{jumps, 2}})
		return r
	}
)

func TestRows(t *testing.T) {
	want := []row{
		{Scenario: "alone", metric: jumps, Contestant: "cow", spread: spread{1, 2, 2, 2}},
		{Scenario: "farm", metric: jumps, Contestant: "cow", spread: spread{2, 1, 2, 3}, Ratio: 0.5},
		{Scenario: "farm", metric: jumps, Contestant: "goat", spread: spread{1, 4, 4, 4}, Ratio: 1},
		{Scenario: "farm", metric: eats, Contestant: "cow", spread: spread{2, 20, 25, 30}}, // the peer's is 0
		{Scenario: "farm", metric: eats, Contestant: "goat", spread: spread{1, 0, 0, 0}},
	}
	if diff := cmp.Diff(want, farmValues().rows([]scenario{alone, farm}), cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestVerdicts(t *testing.T) {
	got := farmValues().verdicts([]target{
		{what: "below", of: key{"farm", "cow", "jumps"}, most: 2.5},
		{what: "just met", of: key{"farm", "cow", "jumps"}, most: 2},
		{what: "above", of: key{"farm", "cow", "jumps"}, most: 1.9},
		{what: "against another", of: key{"farm", "goat", "jumps"}, against: key{"alone", "cow", "jumps"}, most: 1},
		{what: "not measured", of: key{"farm", "pig", "jumps"}, most: 1},
		{what: "against what was not measured", of: key{"farm", "cow", "jumps"}, against: key{"farm", "pig", "jumps"}, most: 1},
		{what: "against nothing at all", of: key{"farm", "cow", "eats"}, against: key{"farm", "goat", "eats"}, most: 1},
	})
	want := []verdict{
		{"below", 2, 2.5, true}, {"just met", 2, 2, true}, {"above", 2, 1.9, false}, {"against another", 2, 1, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestText(t *testing.T) {
	r := report{
		Rows:     farmValues().rows([]scenario{farm}),
		Targets:  []verdict{{"jumps high", 2, 1.9, false}},
		Failures: []string{"run 2: fell"},
	}
	var b strings.Builder
	if err := r.text(&b); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "\n\n")
	const want = `scenario  metric  unit  contestant  n   min  median   max  ratio
farm      jumps   m     cow         2  1.00    2.00  3.00  0.500
                        goat        1  4.00    4.00  4.00   1.00
          eats    kg    cow         2  20.0    25.0  30.0
                        goat        1     0       0     0

target (medians)  measured  at most
jumps high            2.00     1.90  MISSED

failed: run 2: fell
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0049: "0.005", 0.25: "0.250", 1: "1.00", 9.99: "9.99", 48.94: "48.9", 353.4: "353", 12345: "12345", math.Pi: "3.14",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestFileName(t *testing.T) {
	if got := fileName("a scale/up, 5-1"); got != "a_scaleup_5-1" {
		t.Errorf("fileName = %q", got)
	}
}

func TestGood(t *testing.T) {
	for _, tt := range []struct {
		name   string
		report report
		want   bool
	}{
		{"nothing measured, nothing missed", report{}, true},
		{"all met", report{Targets: []verdict{{Met: true}}}, true},
		{"one missed", report{Targets: []verdict{{Met: true}, {}}}, false},
		{"a turn failed", report{Failures: []string{"x"}}, false},
	} {
		if got := tt.report.good(); got != tt.want {
			t.Errorf("%s: good() = %v, want %v", tt.name, got, tt.want)
		}
	}
}
