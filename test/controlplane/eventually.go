package controlplane

import (
	"context"
	"testing"
	"time"
)

// Eventually polls check until it returns nil. After timeout it ends the test with check's last error, so that error
// should tell what was found and what was wanted. The context given to check ends with timeout.
func Eventually(t testing.TB, timeout time.Duration, check func(context.Context) error) {
	t.Helper()
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
	ticker := time.NewTicker(pollInterval)
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
