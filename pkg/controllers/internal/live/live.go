// Package live reads from the API server instead of a cache. Before a controller acts on many pods of one node it wants to know how
// that node is now, not how the cache remembers it; one answer will do for all of them ([Reads]). Before it acts for an owner it wants to
// know whether that is still there ([Same]).
package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// ErrReplaced means that an object is gone; the one of its name, if there is one, is another, which the cache will show.
var ErrReplaced = errors.New("the object has been deleted, or deleted and created again")

// Same returns an object as it is now, without managed fields. get is that of its client. The error is ErrReplaced if the object is gone.
func Same[T metav1.Object](ctx context.Context, known T, get func(context.Context, string, metav1.GetOptions) (T, error)) (T, error) {
	now, err := get(ctx, known.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && now.GetUID() != known.GetUID():
		return known, ErrReplaced
	case err != nil:
		return known, fmt.Errorf("read %s live: %w", known.GetName(), err)
	}
	now.SetManagedFields(nil)
	return now, nil
}

// fresh is how old an answer may be that is shared, counted from when it was asked for to when the next one asks: how long both
// then wait does not matter, so a read that takes longer serves those who came while it was new.
const fresh = time.Second

// Reads are the latest live answers by name. The methods may be called from any goroutine.
type Reads[T any] struct {
	read  func(ctx context.Context, name string) (T, error)
	clock clock.PassiveClock

	lock    sync.Mutex
	answers map[string]*answer[T]
}

type answer[T any] struct {
	turn  chan struct{} // holds one while somebody asks, so that others wait for the answer instead of asking too
	asked time.Time     // what the answer shows is no older; zero: never answered
	value T
}

// NewReads returns reads that have no answers yet.
func NewReads[T any](c clock.PassiveClock, read func(ctx context.Context, name string) (T, error)) *Reads[T] {
	return &Reads[T]{read: read, clock: c, answers: map[string]*answer[T]{}}
}

// Get returns an answer that was asked for neither before since nor as long ago as a second. It asks if there is none,
// and so may block like the read itself. Errors are the read's and are not shared, or the context's.
func (r *Reads[T]) Get(ctx context.Context, name string, since time.Time) (T, error) {
	came, a := r.clock.Now(), r.of(name)
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	defer func() { <-a.turn }()
	if !a.asked.IsZero() && !a.asked.Before(since) && came.Sub(a.asked) < fresh {
		return a.value, nil
	}
	now := r.clock.Now()
	value, err := r.read(ctx, name)
	if err != nil {
		return value, err
	}
	a.asked, a.value = now, value
	return value, nil
}

// Forget drops the answer about a name: the next Get asks.
func (r *Reads[T]) Forget(name string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.answers, name)
}

func (r *Reads[T]) of(name string) *answer[T] {
	r.lock.Lock()
	defer r.lock.Unlock()
	a := r.answers[name]
	if a == nil {
		a = &answer[T]{turn: make(chan struct{}, 1)}
		r.answers[name] = a
	}
	return a
}
