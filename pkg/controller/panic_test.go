package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestPanicsOfGoroutinesAreThoseOfTheSync and not the end of the process.
func TestPanicsOfGoroutinesAreThoseOfTheSync(t *testing.T) {
	others := 0
	l := newLoop(t, 1, 0, func(context.Context, string) (Result, error) {
		var outer Group
		outer.Go(func() error {
			var inner Group
			inner.SetLimit(1)
			inner.Go(func() error { others++; return errors.New("the first error") })
			inner.Go(func() error { panic("an odd object") })
			return inner.Wait()
		})
		return Result{}, outer.Wait()
	})
	err := func() error { _, err := l.reconcileContained(t.Context(), "k"); return err }()
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Value != "an odd object" || !strings.Contains(string(panicked.Stack), "TestPanicsOfGoroutines") {
		t.Errorf("the sync returns %v, want the panic with its stack", err)
	}
	if n := testutil.ToFloat64(l.metrics.panics); n != 1 || others != 1 {
		t.Errorf("%v panics counted, want 1; %d other goroutines, want 1", n, others)
	}
}
