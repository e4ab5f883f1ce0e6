package fenced

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is the resource lock of a manager whose election runs outside of it. Its methods send no request.
type lock struct {
	identity, name string

	asked chan struct{} // closed when the manager competes
	ask   func()        // closes it; may be called again
	won   chan struct{} // closed when the lease is acquired, for good
	win   func()        // closes it; may be called again
}

var _ resourcelock.Interface = (*lock)(nil)

func newLock(identity, name string) *lock {
	l := &lock{identity: identity, name: name, asked: make(chan struct{}), won: make(chan struct{})}
	l.ask = sync.OnceFunc(func() { close(l.asked) })
	l.win = sync.OnceFunc(func() { close(l.won) })
	return l
}

// someoneElse is the holder for a manager that stops before it has led.
const someoneElse = "someone else"

// Get blocks until the lease is held, so that the manager leads at once, or until ctx ends.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.ask()
	holder := l.identity
	select {
	case <-l.won:
	case <-ctx.Done():
		holder = someoneElse
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 1}, []byte(holder), nil
}

var errNotHeld = errors.New("the lease is not held")

// Update acquires and renews the lock for the manager. It always succeeds: the manager stops before the lease is
// released, and when the lease is lost the fence closes first.
func (l *lock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	select {
	case <-l.won:
		return nil
	default:
		return errNotHeld
	}
}

// Create is never called, because Get always finds a record.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// RecordEvent does nothing: the elector writes these events.
func (l *lock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *lock) Describe() string { return l.name }
