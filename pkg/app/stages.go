package app

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// stage is one part of a process. A stage calls up when the next stage may start, and returns when ctx has
// ended or the work of the stage is done.
type stage func(ctx context.Context, up func()) error

// runStages starts each stage when the previous stage is up or has returned. When ctx ends, a stage fails or the
// last stage returns, runStages stops the stages in reverse order: the context of a stage ends when all later
// stages have returned. It returns the error of the stage that failed first. The end of ctx is not a failure.
func runStages(ctx context.Context, stages ...stage) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var once sync.Once
	var firstErr error
	fail := func(err error) { once.Do(func() { firstErr = err }); end() }

	var stops []func()
	for i, run := range stages {
		stageCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		up, down := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(down)
			err := run(stageCtx, sync.OnceFunc(func() { close(up) }))
			// A stage that was stopped may return the error of its context.
			if stopped := stageCtx.Err() != nil && errors.Is(err, context.Canceled); err != nil && !stopped {
				fail(err)
			}
		}()
		stops = append(stops, func() { cancel(); <-down })
		next := up
		if i == len(stages)-1 {
			next = nil
		}
		select {
		case <-next:
		case <-down:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	return firstErr
}
