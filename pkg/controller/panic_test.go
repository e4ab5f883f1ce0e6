package controller

import (
	"errors"
	"strings"
	"testing"
)

// A panic in a goroutine of a sync is an error of the sync, and does not end the process.
func TestGroupPanics(t *testing.T) {
	others := 0
	err := Contain(func() error {
		var outer Group
		outer.Go(func() error {
			var inner Group
			inner.SetLimit(1)
			inner.Go(func() error { others++; return errors.New("the first error") })
			inner.Go(func() error { panic("an odd object") })
			return inner.Wait()
		})
		return outer.Wait()
	})
	var panicked *PanicError
	if !errors.As(err, &panicked) || panicked.Value != "an odd object" || !strings.Contains(string(panicked.Stack), "TestGroupPanics") {
		t.Errorf("error %v, want the panic with its stack", err)
	}
	if others != 1 {
		t.Errorf("%d other goroutines, want 1", others)
	}
}
