package app

import (
	"testing"
	"time"
)

// Whoever cuts a write that is not answered decides whether the lease may be released.
func TestLoopsOutlastTheElectorsPatience(t *testing.T) {
	for shutdown, want := range map[time.Duration]time.Duration{0: 0, time.Nanosecond: time.Second + 1, 10 * time.Second: 11 * time.Second} {
		if got := drain(shutdown); got != want {
			t.Errorf("drain(%v) = %v, want %v", shutdown, got, want)
		}
	}
}
