package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

type reading struct {
	metric, unit string
	value        float64
}

// target is the largest median of a metric that is good, or of the ratio to the peer.
type target struct {
	metric     string
	contestant string // "": the first
	ratio      bool
	most       float64
}

type key struct{ metric, contestant string }

type results struct {
	scenario scenario
	metrics  []reading // in order
	values   map[key][]float64
	failures int
}

func (r *results) add(contestant string, readings []reading) {
	for _, n := range readings {
		if !slices.ContainsFunc(r.metrics, func(m reading) bool { return m.metric == n.metric }) {
			r.metrics = append(r.metrics, n)
		}
		k := key{n.metric, contestant}
		r.values[k] = append(r.values[k], n.value)
	}
}

// report prints a line for each metric and contestant and a line for each target. It returns false if a target was
// missed or a turn failed.
func (r *results) report(out io.Writer) (good bool) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\tunit\tcontestant\tn\tmin\tmedian\tmax\tratio\n", r.scenario.name)
	peer := r.scenario.peer
	for _, m := range r.metrics {
		for _, c := range r.scenario.contestants {
			values := r.values[key{m.metric, c.name}]
			if len(values) == 0 {
				continue
			}
			ratio := ""
			if base := median(r.values[key{m.metric, peer}]); base != 0 {
				ratio = formatNumber(median(values) / base)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", m.metric, m.unit, c.name, len(values),
				formatNumber(slices.Min(values)), formatNumber(median(values)), formatNumber(slices.Max(values)), ratio)
		}
	}
	good = r.failures == 0
	for _, t := range r.scenario.targets {
		contestant := t.contestant
		if contestant == "" {
			contestant = r.scenario.contestants[0].name
		}
		name, values := t.metric+", "+contestant, r.values[key{t.metric, contestant}]
		measured := median(values)
		if t.ratio {
			base := median(r.values[key{t.metric, peer}])
			if base == 0 {
				continue
			}
			name, measured = name+" / "+peer, measured/base
		}
		if len(values) == 0 {
			continue
		}
		verdict := "met"
		if measured > t.most {
			verdict, good = "MISSED", false
		}
		fmt.Fprintf(w, "target: %s: %s, at most %s: %s\n", name, formatNumber(measured), formatNumber(t.most), verdict)
	}
	if r.failures > 0 {
		fmt.Fprintf(w, "%d turns failed\n", r.failures)
	}
	_ = w.Flush() // a failed write to the terminal is not reported
	return good
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// formatNumber keeps three digits.
func formatNumber(v float64) string {
	digits := 0
	for size := 100.; size > v && digits < 3; size /= 10 {
		digits++
	}
	return fmt.Sprintf("%.*f", digits, v)
}
