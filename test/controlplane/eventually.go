package controlplane

import (
	"context"
	"testing"
	"time"
)

// Intervals grow, so that many tests side by side do not load the API server.
const firstPollInterval, lastPollInterval = 20 * time.Millisecond, 200 * time.Millisecond

// leeway is the factor for time limits on a machine with other work. No test measures speed.
const leeway = 4

// Eventually polls check until check returns nil. timeout is for an idle machine. After leeway times as long
// Eventually ends the test with the last error, which should name the state found and the state wanted.
func Eventually(t testing.TB, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	timeout *= leeway
	// The context of the test has ended when cleanups run, and cleanups poll too.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := pollUntil(ctx, check); err != nil {
		t.Fatalf("not reached within %v: %v", timeout, err)
	}
}

// Consistently polls check for the duration d and ends the test at the first error. Prefer a proof such as the audit
// log.
func Consistently(t testing.TB, d time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	ticker := time.NewTicker(firstPollInterval)
	defer ticker.Stop()
	for start := time.Now(); ; {
		// A check begun inside d may end after it.
		if err := check(context.WithoutCancel(ctx)); err != nil {
			t.Fatalf("broken after %v: %v", time.Since(start), err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// pollUntil calls check until check returns nil or ctx ends, and then returns the last error of check.
func pollUntil(ctx context.Context, check func(context.Context) error) error {
	var last error
	for interval := firstPollInterval; ; interval = min(lastPollInterval, interval*5/4) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// The error before the deadline is more useful than the error of a check that the deadline cut off.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(interval):
		}
	}
}
