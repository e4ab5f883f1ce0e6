package controller

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// PanicError is what [Contain] makes of a panic.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the goroutine that panicked, as text
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Contain calls do and returns its error, or a [*PanicError] if it panics. One that was contained before, as by [Group], is returned as it is.
func Contain(do func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *PanicError:
			err = v
		default:
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return do()
}

// Group is an [errgroup.Group] for goroutines of a sync. A panic in one of them is a panic of Wait, and so contained as one of the sync itself; in the goroutine it
// would end the process, and that of the next leader, who meets the same object. The zero value is ready to use and has no limit.
type Group struct {
	calls    errgroup.Group
	panicked atomic.Pointer[PanicError] // the first
}

// SetLimit bounds the goroutines to n at a time, before the first begins.
func (g *Group) SetLimit(n int) { g.calls.SetLimit(n) }

// Go calls do in a goroutine, once there are fewer than the limit.
func (g *Group) Go(do func() error) {
	g.calls.Go(func() error {
		err := Contain(do)
		if panicked := (*PanicError)(nil); errors.As(err, &panicked) {
			g.panicked.CompareAndSwap(nil, panicked)
		}
		return err
	})
}

// Wait waits for all goroutines and returns the first error that one of them has returned. If one has panicked, it panics with a [*PanicError]:
// an error would let its caller go on to results that are not there, and note a write as not sent that may have been.
func (g *Group) Wait() error {
	err := g.calls.Wait()
	if panicked := g.panicked.Load(); panicked != nil {
		panic(panicked)
	}
	return err
}
