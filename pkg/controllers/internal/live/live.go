// Package live reads from the API server instead of a cache: [Reads] shares reads of one object between
// syncs, [GetSame] reads an owner before a controller acts for the owner, [Find] reads any object.
package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// GetSame reads the current state of an object, without managed fields. The error is [controller.ErrOutdated] if the
// object was deleted, or deleted and created again.
func GetSame[T metav1.Object](ctx context.Context, known T, get func(context.Context, string, metav1.GetOptions) (T, error)) (T, error) {
	now, err := get(ctx, known.GetName(), metav1.GetOptions{})
	switch {
	case outcome.IsNotFound(err, known.GetName()), err == nil && now.GetUID() != known.GetUID():
		return known, controller.ErrOutdated
	case err != nil:
		return known, fmt.Errorf("read %s live: %w", known.GetName(), err)
	}
	now.SetManagedFields(nil)
	return now, nil
}

// Find reads the current state of an object. It returns nil if no object has the name.
func Find[T any](ctx context.Context, name string, get func(context.Context, string, metav1.GetOptions) (*T, error)) (*T, error) {
	object, err := get(ctx, name, metav1.GetOptions{})
	switch {
	case outcome.IsNotFound(err, name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %q: %w", name, err)
	}
	return object, nil
}

// fresh is the maximum age of a shared result when it is requested. The time that either request waits
// does not count, so a slow read serves all requests that arrived in its first second.
const fresh = time.Second

// Reads holds the latest results by name. The methods may be called from any goroutine.
type Reads[T any] struct {
	read    func(ctx context.Context, name string) (T, error)
	clock   clock.PassiveClock
	results sync.Map // name → *result[T]
}

type result[T any] struct {
	turn  chan struct{} // semaphore: others wait for the running read
	begun time.Time     // start of the read; zero before the first
	value T
}

// NewReads returns an empty set of results.
func NewReads[T any](c clock.PassiveClock, read func(ctx context.Context, name string) (T, error)) *Reads[T] {
	return &Reads[T]{read: read, clock: c}
}

// Get returns a result whose read started at since or later, and not more than a second before the call. If
// there is none, it reads. Errors are not shared. The wait for other reads ends after a minute, because a sync that
// sends nothing for long counts as stuck.
func (r *Reads[T]) Get(ctx context.Context, name string, since time.Time) (value T, err error) {
	called := r.clock.Now()
	stored, _ := r.results.LoadOrStore(name, &result[T]{turn: make(chan struct{}, 1)})
	latest := stored.(*result[T])
	waiting, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	select {
	case latest.turn <- struct{}{}:
	case <-waiting.Done():
		return value, fmt.Errorf("wait for another read of %s: %w", name, waiting.Err())
	}
	defer func() { <-latest.turn }()
	if !latest.begun.Before(since) && called.Sub(latest.begun) < fresh {
		return latest.value, nil
	}
	now := r.clock.Now()
	if value, err = r.read(ctx, name); err == nil {
		latest.begun, latest.value = now, value
	}
	return value, err
}

// Forget drops the result of a name.
func (r *Reads[T]) Forget(name string) { r.results.Delete(name) }
