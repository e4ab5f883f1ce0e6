package main

import (
	"testing"
	"time"
)

func TestAccounted(t *testing.T) {
	for _, tt := range []struct {
		name, report string
		want         time.Duration
		ok           bool
	}{
		{"some", "File: x\nType: cpu\nActive filters:\n   focus=p\nShowing nodes accounting for 40ms, 6.67% of 600ms total\n      flat  flat%\n", 40 * time.Millisecond, true},
		{"none", "Showing nodes accounting for 0, 0% of 600ms total\n", 0, true},
		{"fractions", "Showing nodes accounting for 1210.50ms, 1% of 60000ms total\n", 1210500 * time.Microsecond, true},
		{"no report", "pprof: cannot read\n", 0, false},
	} {
		got, err := accounted(tt.report)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}
