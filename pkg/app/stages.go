package app

import (
	"context"
	"errors"
	"sync"
)

// stage is one part of a process. It calls up when the next stage may start, and blocks until ctx ends, its work is done or it has failed.
type stage func(ctx context.Context, up func()) error

// runStages starts each stage when the one before it is up, or has returned. When ctx ends, when a stage fails or when the last one returns, it
// stops them from the last to the first: the context of a stage ends when the stages after it have returned. It returns the error of the stage that
// failed first. To end because ctx has ended is no failure, whatever ended it.
func runStages(ctx context.Context, stages ...stage) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var once sync.Once
	var first error
	failed := func(err error) { once.Do(func() { first = err }); end() }

	var running []func() // how to stop each
	for i, run := range stages {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		up, down := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(down)
			if err := run(own, sync.OnceFunc(func() { close(up) })); err != nil && !errors.Is(err, context.Canceled) {
				failed(err)
			}
		}()
		running = append(running, func() { cancel(); <-down })
		next := up
		if i == len(stages)-1 {
			next = nil // there is none
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
	for i := range running {
		running[len(running)-1-i]()
	}
	return first
}
