package main

import (
	"context"
	"slices"
)

// scenario is one kind of work that contestants are measured at.
type scenario struct {
	name  string
	about string // what is measured, one line
	// contestants in the order of their turns. peer is the name of the one that the others' medians are divided by.
	contestants []contestant
	peer        string
	adds        []string // controllers that are run on top of those asked for, because they do nothing without it
	long        bool     // only with -long
	maxRuns     int      // more runs tell nothing new; 0: as many as asked for
	// slow are contestants whose pace a rate limit or a timer sets, so that one run is enough.
	slow []string
	// shared: all turns take place on one control plane, one after the other.
	shared bool
	// audit is the policy of the API server's audit log; empty: there is none, so that it costs nothing.
	audit string
	// setup fills a fresh control plane before any manager runs; may be nil.
	setup func(ctx context.Context, r *rig) error
	// measure starts the contestant, gives it the work and reads the numbers. Managers still running afterwards are stopped.
	measure func(ctx context.Context, r *rig, c contestant) ([]reading, error)
}

// metric is a measured quantity of a scenario.
type metric struct {
	Name string
	Unit string
}

// reading is one measured number, in the unit of its metric.
type reading struct {
	metric
	value float64
}

// runs is how often contestant c has its turn if n runs are asked for.
func (s scenario) runs(c contestant, n int) int {
	if s.maxRuns > 0 {
		n = min(n, s.maxRuns)
	}
	if slices.Contains(s.slow, c.name) {
		n = min(n, 1)
	}
	return n
}

// turn is one contestant's go at a scenario.
type turn struct {
	scenario   scenario
	contestant contestant
	run        int // from 1
	// fresh: a new control plane is started before it; last: its control plane is stopped after it.
	fresh, last bool
}

// turns orders the work: in each run every contestant of every scenario once, so that a machine that gets slower or
// faster over time does so to all of them. Scenarios with a shared control plane come in one piece, at the end.
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

// round is one turn for each contestant that still has one in this run, each on a control plane of its own.
func round(s scenario, run, runs int) []turn {
	var order []turn
	for _, c := range s.contestants {
		if run <= s.runs(c, runs) {
			order = append(order, turn{scenario: s, contestant: c, run: run, fresh: true, last: true})
		}
	}
	return order
}
