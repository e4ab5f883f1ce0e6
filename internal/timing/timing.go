// Package timing has what loops need to wait and the libraries do not have.
package timing

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Sleep waits until d has passed. It reports false if ctx ended before.
func Sleep(ctx context.Context, clk clock.Clock, d time.Duration) bool {
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// Signal makes a channel ready, unless its buffer is full.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// MinPositive returns the smallest positive duration, or 0 if no duration is positive.
func MinPositive(waits ...time.Duration) (least time.Duration) {
	for _, d := range waits {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
