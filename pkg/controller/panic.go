package controller

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// PanicError is the error of a panic: its argument and the stack of the goroutine; see [Contain].
type PanicError string

func (e PanicError) Error() string { return string(e) }

// Contain calls do and returns its error, or a [PanicError] if do panics. A panic that was contained
// before is returned unchanged.
func Contain(do func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case PanicError:
			err = v
		default:
			err = PanicError(fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	return do()
}

// Group is an [errgroup.Group] for goroutines of a sync. A panic in a goroutine becomes a panic of Wait,
// and is contained like a panic of the sync. Otherwise it would end the process, and then the next leader
// that reads the same object. The zero value is ready to use and has no limit.
type Group struct {
	calls    errgroup.Group
	panicked atomic.Pointer[PanicError] // first panic
}

// SetLimit limits the running goroutines to n. Call SetLimit before Go.
func (g *Group) SetLimit(n int) { g.calls.SetLimit(n) }

// Go calls do in a goroutine, once there are fewer than the limit.
func (g *Group) Go(do func() error) {
	g.calls.Go(func() error {
		err := Contain(do)
		if panicked := PanicError(""); errors.As(err, &panicked) {
			g.panicked.CompareAndSwap(nil, &panicked)
		}
		return err
	})
}

// Wait waits for all goroutines and returns the first error. If a goroutine panicked, it panics with a
// [PanicError]: after an error the caller would continue with missing results, and could record a sent
// write as not sent.
func (g *Group) Wait() error {
	err := g.calls.Wait()
	if panicked := g.panicked.Load(); panicked != nil {
		panic(*panicked)
	}
	return err
}
