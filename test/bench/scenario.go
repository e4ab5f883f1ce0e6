package main

import (
	"context"
	"slices"
)

type scenario struct {
	name        string
	about       string
	contestants []contestant
	peer        string
	adds        []string
	long        bool // only with -long
	maxRuns     int
	slow        []string
	shared      bool
	audit       string
	// setup fills a fresh control plane before any manager runs; may be nil.
	setup   func(ctx context.Context, r *rig) error
	measure func(ctx context.Context, r *rig, c contestant) ([]reading, error)
}

// metric is a measured quantity of a scenario.
type metric struct {
	Name string
	Unit string
}

type reading struct {
	metric
	value float64
}

func (s scenario) runs(c contestant, n int) int {
	if s.maxRuns > 0 {
		n = min(n, s.maxRuns)
	}
	if slices.Contains(s.slow, c.name) {
		n = min(n, 1)
	}
	return n
}

type turn struct {
	scenario    scenario
	contestant  contestant
	run         int // from 1
	fresh, last bool
}

// turns orders the turns: in each run every contestant of every scenario once, so that a change of the machine's speed
// affects all contestants. Scenarios with a shared control plane come at the end, without other turns between.
func turns(scenarios []scenario, runs int) []turn {
	var order []turn
	for run := 1; run <= runs; run++ {
		for _, s := range scenarios {
			if !s.shared {
				order = append(order, round(s, run, runs)...)
			}
		}
	}
	for _, s := range scenarios {
		if !s.shared {
			continue
		}
		first := len(order)
		for run := 1; run <= runs; run++ {
			order = append(order, round(s, run, runs)...)
		}
		if first == len(order) {
			continue
		}
		for i := range order[first:] {
			order[first+i].fresh, order[first+i].last = false, false
		}
		order[first].fresh, order[len(order)-1].last = true, true
	}
	return order
}

func round(s scenario, run, runs int) []turn {
	var order []turn
	for _, c := range s.contestants {
		if run <= s.runs(c, runs) {
			order = append(order, turn{scenario: s, contestant: c, run: run, fresh: true, last: true})
		}
	}
	return order
}
