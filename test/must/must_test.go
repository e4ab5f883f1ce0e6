package must

import (
	"context"
	"errors"
	"testing"
)

var errBroken = errors.New("broken")

func TestCatchReturnsTheErrorOfAStep(t *testing.T) {
	after := false
	if err := Catch(func() { Get(1, errBroken); after = true }); err != errBroken || after {
		t.Errorf("error %v, went on %v; want %v and no later step", err, after, errBroken)
	}
	if err := Catch(func() { Succeed(nil) }); err != nil {
		t.Error(err)
	}
	defer func() {
		if p := recover(); p != "bug" {
			t.Errorf("recovered %v, want the panic of another function", p)
		}
	}()
	_ = Catch(func() { panic("bug") })
}

func TestForEachEndsTheOtherCallsAtAnError(t *testing.T) {
	if err := Catch(func() {
		ForEach(t.Context(), 2, 2, func(ctx context.Context, i int) {
			if i == 1 {
				Succeed(errBroken)
			}
			<-ctx.Done()
		})
	}); err != errBroken {
		t.Errorf("error %v, want %v", err, errBroken)
	}
}
