package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
)

// diary holds the actions of stages, in order.
type diary []string

func (d *diary) note(action string) { *d = append(*d, action) }

// takes returns a stage that needs a second to start and to stop, and returns err. With early the stage returns
// half a second after it is up.
func (d *diary) takes(name string, err error, early bool) stage {
	return func(ctx context.Context, up func()) error {
		d.note(name + " starts")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			d.note(name + " is not up")
			return ctx.Err()
		}
		d.note(name + " is up")
		up()
		if early {
			time.Sleep(500 * time.Millisecond)
			return err
		}
		<-ctx.Done()
		time.Sleep(time.Second)
		d.note(name + " ends")
		return err
	}
}

func TestStages(t *testing.T) {
	broken, late := errors.New("broken"), errors.New("late")
	canceled := fmt.Errorf("request: %w", context.Canceled)
	started := diary{"a starts", "a is up", "b starts", "b is up", "c starts", "c is up"}
	stopped := diary{"c ends", "b ends", "a ends"}
	for _, tt := range []struct {
		name    string
		a, b, c error
		earlyB  bool
		earlyC  bool
		runtime time.Duration
		want    error
		lines   diary
	}{
		{name: "stopped", runtime: time.Minute, lines: slices.Concat(started, stopped)},
		{name: "stopped while one starts", runtime: 1500 * time.Millisecond, lines: diary{"a starts", "a is up", "b starts", "b is not up", "a ends"}},
		{name: "the last one fails at the end", c: late, runtime: time.Minute, want: late, lines: slices.Concat(started, stopped)},
		{name: "the last one is done", earlyC: true, runtime: time.Hour, lines: slices.Concat(started, stopped[1:])},
		{name: "the last one fails", c: broken, earlyC: true, runtime: time.Hour, want: broken, lines: slices.Concat(started, stopped[1:])},
		{name: "a request of the last one was cancelled", c: canceled, earlyC: true, runtime: time.Hour, want: canceled, lines: slices.Concat(started, stopped[1:])},
		{name: "one fails, another when it is stopped", b: broken, earlyB: true, a: late, runtime: time.Hour, want: broken,
			lines: diary{"a starts", "a is up", "b starts", "b is up", "c starts", "c is not up", "a ends"}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			var d diary
			ctx, cancel := context.WithTimeout(t.Context(), tt.runtime)
			defer cancel()
			begun := time.Now()
			err := runStages(ctx, d.takes("a", tt.a, false), d.takes("b", tt.b, tt.earlyB), d.takes("c", tt.c, tt.earlyC))
			fakeapi.WantError(t, "error", err, tt.want)
			fakeapi.WantEqual(t, "actions", d, tt.lines)
			if tt.runtime == time.Hour && time.Since(begun) > time.Minute {
				t.Errorf("stopped after %v", time.Since(begun))
			}
		})
	}
}
