package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
)

// diary records the actions of stages, in order.
type diary struct {
	lock  sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// takes returns a stage that needs a second to start and to stop, and returns err. With early the stage returns
// half a second after it is up.
func (d *diary) takes(name string, err error, early bool) stage {
	return func(ctx context.Context, up func()) error {
		d.note("%s starts", name)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			d.note("%s is not up", name)
			return ctx.Err()
		}
		d.note("%s is up", name)
		up()
		if early {
			time.Sleep(500 * time.Millisecond)
			return err
		}
		<-ctx.Done()
		time.Sleep(time.Second)
		d.note("%s ends", name)
		return err
	}
}

func TestStages(t *testing.T) {
	broken, late := errors.New("broken"), errors.New("late")
	canceled := fmt.Errorf("request: %w", context.Canceled)
	started := []string{"a starts", "a is up", "b starts", "b is up", "c starts", "c is up"}
	stopped := []string{"c ends", "b ends", "a ends"}
	for _, tt := range []struct {
		name    string
		a, b, c error
		earlyB  bool
		earlyC  bool
		told    time.Duration // to stop, after the start
		want    error
		lines   []string
	}{
		{name: "told to stop", told: time.Minute, lines: slices.Concat(started, stopped)},
		{name: "told to stop while one starts", told: 1500 * time.Millisecond, lines: []string{"a starts", "a is up", "b starts", "b is not up", "a ends"}},
		{name: "the last one fails at the end", c: late, told: time.Minute, want: late, lines: slices.Concat(started, stopped)},
		{name: "the last one is done", earlyC: true, told: time.Hour, lines: slices.Concat(started, stopped[1:])},
		{name: "the last one fails", c: broken, earlyC: true, told: time.Hour, want: broken, lines: slices.Concat(started, stopped[1:])},
		{name: "a request of the last one was cancelled", c: canceled, earlyC: true, told: time.Hour, want: canceled, lines: slices.Concat(started, stopped[1:])},
		{name: "one fails, another when it is stopped", b: broken, earlyB: true, a: late, told: time.Hour, want: broken,
			lines: []string{"a starts", "a is up", "b starts", "b is up", "c starts", "c is not up", "a ends"}},
	} {
		fakeapi.Bubble(t, tt.name, func(t *testing.T) {
			d := &diary{}
			ctx, cancel := context.WithTimeout(t.Context(), tt.told)
			defer cancel()
			begun := time.Now()
			err := runStages(ctx, d.takes("a", tt.a, false), d.takes("b", tt.b, tt.earlyB), d.takes("c", tt.c, tt.earlyC))
			fakeapi.WantError(t, "error", err, tt.want)
			fakeapi.WantEqual(t, "actions", d.lines, tt.lines)
			if tt.told == time.Hour && time.Since(begun) > time.Minute {
				t.Errorf("stopped after %v", time.Since(begun))
			}
		})
	}
}
