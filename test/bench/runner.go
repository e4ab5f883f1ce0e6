package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const turnTimeout = 20 * time.Minute

type runner struct {
	settings
	progress io.Writer
	results  results
	failures []string
	rig      *rig
}

func (r *runner) run(ctx context.Context, order []turn) error {
	for i, t := range order {
		if ctx.Err() != nil {
			r.failures = append(r.failures, fmt.Sprintf("interrupted before turn %d of %d", i+1, len(order)))
			break
		}
		fmt.Fprintf(r.progress, "[%d/%d] run %d: %s, %s: ", i+1, len(order), t.run, t.scenario.name, t.contestant.name)
		readings, err := r.take(ctx, t)
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(r.progress, "interrupted")
		case err != nil:
			fmt.Fprintln(r.progress, "FAILED:", err)
			r.failures = append(r.failures, fmt.Sprintf("run %d of %s, %s: %v", t.run, t.scenario.name, t.contestant.name, err))
		default:
			fmt.Fprintln(r.progress, summary(readings))
			r.results.add(t, readings)
		}
	}
	return r.release()
}

func (r *runner) take(ctx context.Context, t turn) (_ []reading, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnTimeout, fmt.Errorf("turn is not done within %v", turnTimeout))
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	if t.fresh || r.rig == nil {
		if err := r.release(); err != nil {
			return nil, err
		}
		if r.rig, err = newRig(ctx, t.scenario, r.settings); err != nil {
			return nil, err
		}
	}
	r.rig.label, r.rig.abort = fileName(fmt.Sprintf("%s-%s-%d", t.scenario.name, t.contestant.name, t.run)), abort
	defer func() {
		err = errors.Join(err, r.rig.stopManagers())
		if t.last || err != nil {
			err = errors.Join(err, r.release())
		}
	}()
	return t.scenario.measure(ctx, r.rig, t.contestant)
}

func (r *runner) release() error {
	if r.rig == nil {
		return nil
	}
	rig := r.rig
	r.rig = nil
	return rig.stop()
}

func summary(readings []reading) string {
	parts := make([]string, len(readings))
	for i, one := range readings {
		parts[i] = fmt.Sprintf("%s %s %s", one.Name, number(one.value), one.Unit)
	}
	return strings.Join(parts, "; ")
}

// fileName keeps letters, digits and dashes of a label.
func fileName(label string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			return c
		case c == ' ':
			return '_'
		default:
			return -1
		}
	}, label)
}
