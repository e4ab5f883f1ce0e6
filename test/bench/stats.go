package main

import (
	"slices"
)

// spread is the range of some measured values.
type spread struct {
	N      int
	Min    float64
	Median float64
	Max    float64
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	return spread{N: len(values), Min: slices.Min(values), Median: median(values), Max: slices.Max(values)}
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
