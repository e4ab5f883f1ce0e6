package main

import "testing"

func TestSpreadOf(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		want   spread
	}{
		{"nothing was measured", nil, spread{}},
		{"one value is all three", []float64{4}, spread{N: 1, Min: 4, Median: 4, Max: 4}},
		{"the middle of an odd number, whatever their order", []float64{9, 1, 2}, spread{N: 3, Min: 1, Median: 2, Max: 9}},
		{"the mean of the middle two of an even number", []float64{8, 1, 4, 2}, spread{N: 4, Min: 1, Median: 3, Max: 8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := spreadOf(tt.values); got != tt.want {
				t.Errorf("spreadOf(%v) = %+v, want %+v", tt.values, got, tt.want)
			}
		})
	}
}

func TestSpreadOfLeavesTheOrderOfRunsAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	spreadOf(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("values are now %v, want them as they were: 3 1 2", values)
	}
}
