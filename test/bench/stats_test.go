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

func TestPercentile(t *testing.T) {
	upTo200 := make([]float64, 200) // 200, 199, ..., 1
	for i := range upTo200 {
		upTo200[i] = float64(200 - i)
	}
	for _, tt := range []struct {
		name   string
		values []float64
		p      float64
		want   float64
	}{
		{"nothing was measured", nil, 99, 0},
		{"one value is every percentile", []float64{7}, 1, 7},
		{"p50 of 200 is the 100th", upTo200, 50, 100},
		{"p99 of 200 is the 198th: two may be slower", upTo200, 99, 198},
		{"p100 is the largest", upTo200, 100, 200},
		{"p0 is the smallest", upTo200, 0, 1},
		{"between two ranks it is the higher", []float64{1, 2, 3}, 34, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentile(tt.values, tt.p); got != tt.want {
				t.Errorf("percentile(p%v) = %v, want %v", tt.p, got, tt.want)
			}
		})
	}
}
