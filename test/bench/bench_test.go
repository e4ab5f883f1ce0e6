package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"minikcm/internal/fakeapi"
)

func TestScenariosAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios {
		if s.measure == nil || s.about == "" || len(s.contestants) == 0 || names[s.name] {
			t.Errorf("scenario %s lacks a part, or its name is not unique", s.name)
		}
		names[s.name] = true
		for _, target := range s.targets {
			if target.contestant != "" && !slices.ContainsFunc(s.contestants, func(c contestant) bool { return c.name == target.contestant }) {
				t.Errorf("scenario %s: target of unknown contestant %q", s.name, target.contestant)
			}
		}
	}
	var out strings.Builder
	if err := runBench(t.Context(), []string{"-list"}, &out, io.Discard); err != nil || strings.Count(out.String(), "\n") != len(scenarios) {
		t.Errorf("-list: error %v, output %q; want a line for each of the %d scenarios", err, out.String(), len(scenarios))
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-runs=0"}, {"-runs=many"}, {"extra"}, {"-scenarios=cows", "-ours=/dev/null", "-upstream=/dev/null"}, {"-ours=/no/such/program"}} {
		if err := runBench(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("runBench(%q) succeeded, want an error", args)
		}
	}
}

func TestSelectScenarios(t *testing.T) {
	both := []contestant{ours, upstream}
	all := []scenario{{name: "pods", contestants: both}, {name: "pods-many", contestants: both, long: true}, {name: "nodes", contestants: both}}
	for _, tt := range []struct {
		name string
		o    options
		want string
	}{
		{"without patterns all that are not long", options{}, "pods nodes"},
		{"a long one with -long", options{scenarios: "pods*", long: true}, "pods pods-many"},
		{"a long one by its name", options{scenarios: "pods-many"}, "pods-many"},
		{"in the order of the list", options{scenarios: "nodes,pods"}, "pods nodes"},
		{"unknown", options{scenarios: "cows,["}, ""},
		{"unknown contestant", options{contestants: "theirs"}, ""},
	} {
		var names []string
		for _, s := range selectScenarios(all, tt.o) {
			names = append(names, s.name)
		}
		fakeapi.Want(t, tt.name+": selected", strings.Join(names, " "), tt.want)
	}
	if got := selectScenarios(all, options{contestants: "ours*"}); len(got[0].contestants) != 1 || len(all[0].contestants) != 2 {
		t.Errorf("contestants %v, want ours alone, and the list unchanged", got[0].contestants)
	}
}

func TestReport(t *testing.T) {
	r := &results{values: map[key][]float64{}, scenario: scenario{name: "farm", contestants: []contestant{ours, upstream}, peer: upstream.name, targets: []target{
		{metric: "jumps", most: 2}, {metric: "jumps", ratio: true, most: 0.4}, {metric: "eats", ratio: true, most: 1}, {metric: "sleeps", most: 1},
	}}}
	r.add("ours", []reading{{"jumps", "m", 1}, {"eats", "kg", 20}})
	r.add("upstream", []reading{{"jumps", "m", 4}, {"eats", "kg", 0}})
	r.add("ours", []reading{{"jumps", "m", 3}, {"eats", "kg", 30}})
	var out strings.Builder
	if r.report(&out) {
		t.Error("report is good, although a target was missed")
	}
	const want = `
farm   unit  contestant  n  min   median  max    ratio
jumps  m     ours        2  1.00  2.00    3.00   0.500
jumps  m     upstream    1  4.00  4.00    4.00   1.00
eats   kg    ours        2  20.0  25.0    30.0   
eats   kg    upstream    1  0.000 0.000   0.000  
target: jumps, ours: 2.00, at most 2.00: met
target: jumps, ours / upstream: 0.500, at most 0.400: MISSED
`
	fakeapi.WantEqual(t, "report", strings.Fields(out.String()), strings.Fields(want))
	r.scenario.targets = r.scenario.targets[:1]
	if !r.report(io.Discard) {
		t.Error("report is not good, although the target was met")
	}
	r.failures = 1
	if r.report(io.Discard) {
		t.Error("report is good, although a turn failed")
	}
}
