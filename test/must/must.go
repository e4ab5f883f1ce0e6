// Package must lets programs write long scenarios without error results: a failed step panics, and [Catch] returns the
// error of the step.
package must

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

type failure struct{ error }

// Succeed ends the function that Catch calls if err is not nil.
func Succeed(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get is Succeed for a call with a result.
func Get[T any](value T, err error) T {
	Succeed(err)
	return value
}

// Catch calls do and returns the error of the first failed step.
func Catch(do func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	do()
	return nil
}

// ForEach calls do for 0 to n-1, in the given number of goroutines. The first error ends ctx.
func ForEach(ctx context.Context, workers, n int, do func(ctx context.Context, i int)) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return Catch(func() { do(ctx, i) }) })
	}
	Succeed(group.Wait())
}

// Pause waits for d.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
		Succeed(context.Cause(ctx))
	case <-time.After(d):
	}
}

// Poll calls done until done returns true.
func Poll(ctx context.Context, interval time.Duration, done func() bool) {
	for !done() {
		Pause(ctx, interval)
	}
}
