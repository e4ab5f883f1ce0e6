package main

import (
	"math"
	"slices"
)

// spread is the range of some measured values.
type spread struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// spreadOf leaves values as they are. Without values all is zero.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	return spread{N: len(values), Min: slices.Min(values), Median: median(values), Max: slices.Max(values)}
}

// median of an even number of values is the mean of the middle two; of none it is 0.
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

// percentile is the smallest of the values that at least p percent of them do not exceed (nearest rank); of none it is 0.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
