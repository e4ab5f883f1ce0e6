package controlplane

import (
	"context"
	"testing"
	"time"
)

// A poll begins with short intervals and ends with long ones, so that many tests side by side do not load the API server.
const firstPollInterval, lastPollInterval = 20 * time.Millisecond, 200 * time.Millisecond

// leeway is how many times longer things may take on a machine that does much else. No test is about speed.
const leeway = 4

// Eventually polls check until it returns nil. timeout is for a machine that does nothing else; after leeway times as long it ends the test with check's
// last error, so that error should tell what was found and what was wanted. The context given to check ends then, too.
func Eventually(t testing.TB, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
	timeout *= leeway
	// Not the test's own context: that one has ended when cleanups run, and they poll too.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatalf("not reached within %v: %v", timeout, err)
	}
}

// Consistently polls check for the duration d and ends the test at its first error. It is for promises that something
// does not happen; prefer a proof that it cannot, such as an audit log, where there is one.
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

// poll calls check until it returns nil or ctx ends; then it returns check's last error.
func poll(ctx context.Context, check func(context.Context) error) error {
	var last error
	for interval := firstPollInterval; ; interval = min(lastPollInterval, interval*5/4) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// A check cut off by our own deadline says less than the one before it.
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
