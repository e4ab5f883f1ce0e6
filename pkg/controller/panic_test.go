package controller

import (
	"errors"
	"fmt"
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
	var panicked PanicError
	if text := fmt.Sprint(err); !errors.As(err, &panicked) || strings.Count(text, "panic: an odd object") != 1 || !strings.Contains(text, "TestGroupPanics") {
		t.Errorf("error %v, want the panic with its stack", err)
	}
	if others != 1 {
		t.Errorf("%d other goroutines, want 1", others)
	}
}
