package garbagecollector

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/conversion"
)

const (
	// hangs is the duration from which a failed read counts against its API. The API server responds within milliseconds.
	hangs = 2 * time.Second
	// turnPatience is how long anybody waits for a turn, a place or a slot. After that the key waits for its turn again: a sync that does nothing for long counts as
	// stuck.
	turnPatience = 30 * time.Second
)

// api is what answers, or does not, as a whole: the questions of one kind about one type.
type api struct {
	schema.GroupVersionResource
	wide   bool // lists of all namespaces, which may take long although others do not
	shared bool // lists of all namespaces for the owners of all: the list of one namespace may work if one of these fails
}

// inquiries share reads among all callers that need the same response: per key one read is in flight at a time, and per API only a few. An API whose reads time
// out backs off: until then, and while a single read tries the API again, callers get a *silence error at once.
type inquiries[K comparable, A any] struct {
	clock clock.PassiveClock
	most  int           // reads of one API at once
	all   chan struct{} // holds one for each read in flight; nil: reads of all APIs are not bounded

	lock     sync.Mutex
	known    map[K]*inquiry[A]
	breakers map[api]*breaker
}

// inquiry is what is known of one thing.
type inquiry[A any] struct {
	turn   chan struct{} // holds one while somebody asks
	answer A             // the latest, or zero; guarded by the lock of the inquiries
}

func newInquiries[K comparable, A any](clk clock.PassiveClock, most int) *inquiries[K, A] {
	return &inquiries[K, A]{clock: clk, most: most, known: map[K]*inquiry[A]{}, breakers: map[api]*breaker{}}
}

// latest is the latest answer about a thing; zero: there is none.
func (q *inquiries[K, A]) latest(key K) (none A) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if i := q.known[key]; i != nil {
		return i.answer
	}
	return none
}

// pause is for how long an API is not to be asked, because it does not answer; 0: it may be.
func (q *inquiries[K, A]) pause(of api) time.Duration {
	q.lock.Lock()
	defer q.lock.Unlock()
	if b := q.breakers[of]; b != nil {
		return max(b.until.Sub(q.clock.Now()), 0)
	}
	return 0
}

// ask returns the latest answer about a thing if that is good, and otherwise that of put, which reports apart from it whether the API has failed. The error is a
// *silence if the API does not answer, ErrDraining, errBusy, or that ctx has ended.
func (q *inquiries[K, A]) ask(ctx context.Context, key K, of api, good func(A) bool, put func(context.Context) (A, error)) (none A, err error) {
	if a := q.latest(key); good(a) {
		return a, nil
	}
	i, b := q.inquiry(key), q.breaker(of)
	if err := enter(ctx, i.turn); err != nil {
		return none, err
	}
	defer func() { <-i.turn }()
	if a := q.latest(key); good(a) {
		return a, nil
	}
	if err := enter(ctx, b.places); err != nil {
		return none, err
	}
	defer func() { <-b.places }()
	if q.all != nil { // to wait for others is not held against the API
		if err := enter(ctx, q.all); err != nil {
			return none, err
		}
		defer func() { <-q.all }()
	}
	ctx, cancel := withinTerm(ctx)
	defer cancel()
	if controller.Draining(ctx) || ctx.Err() != nil {
		return none, noSlot(ctx)
	}
	begun, err := q.begin(b)
	if err != nil {
		return none, err
	}
	failed := context.Canceled // which says nothing of the API, as a panic does
	defer func() { q.end(b, begun, failed) }()
	answer, failed := put(ctx)
	if failed != nil && ctx.Err() != nil {
		failed = context.Cause(ctx)
		return none, failed
	}
	if errors.Is(failed, context.Canceled) {
		return none, failed
	}
	q.keep(i, answer)
	return answer, nil
}

// withinTerm is for reads, and ends with the term, too: what they tell is of no use after it.
func withinTerm(ctx context.Context) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-controller.TermDone(ctx):
			cancel(controller.ErrDraining)
		case <-within.Done():
		}
	}()
	return within, func() { cancel(context.Canceled) }
}

// enter takes a place in a channel. It waits until the term ends, and for turnPatience at most.
func enter(ctx context.Context, places chan struct{}) error {
	patience, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	select {
	case places <- struct{}{}:
		return nil
	case <-controller.TermDone(ctx):
	case <-patience.Done():
	}
	return noSlot(ctx)
}

func (q *inquiries[K, A]) inquiry(key K) *inquiry[A] {
	q.lock.Lock()
	defer q.lock.Unlock()
	i := q.known[key]
	if i == nil {
		i = &inquiry[A]{turn: make(chan struct{}, 1)}
		q.known[key] = i
	}
	return i
}

func (q *inquiries[K, A]) breaker(of api) *breaker {
	q.lock.Lock()
	defer q.lock.Unlock()
	b := q.breakers[of]
	if b == nil {
		b = &breaker{places: make(chan struct{}, q.most)}
		q.breakers[of] = b
	}
	return b
}

func (q *inquiries[K, A]) begin(b *breaker) (time.Time, error) {
	q.lock.Lock()
	defer q.lock.Unlock()
	now := q.clock.Now()
	if s := b.begin(now); s != nil {
		return now, s
	}
	return now, nil
}

func (q *inquiries[K, A]) end(b *breaker, begun time.Time, failed error) {
	q.lock.Lock()
	defer q.lock.Unlock()
	b.end(begun, failed, q.clock.Now())
}

func (q *inquiries[K, A]) keep(i *inquiry[A], answer A) {
	q.lock.Lock()
	defer q.lock.Unlock()
	i.answer = answer
}

// reset forgets everything, at the beginning of a term. Nobody may be asking.
func (q *inquiries[K, A]) reset() {
	q.lock.Lock()
	defer q.lock.Unlock()
	clear(q.known)
	clear(q.breakers)
}

// prune forgets answers that are old, and APIs that nobody asks.
func (q *inquiries[K, A]) prune(old func(A) bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	for key, i := range q.known {
		if len(i.turn) == 0 && old(i.answer) {
			delete(q.known, key)
		}
	}
	for of, b := range q.breakers {
		if len(b.places) == 0 && q.clock.Since(b.until) > maxPause {
			delete(q.breakers, of)
		}
	}
}

// silence is an error that says that an API is not asked now, because it does not answer.
type silence struct {
	again time.Duration // until somebody may
}

// Error omits the cause: the failed read may have concerned another namespace. outcome.EventMessage returns the
// same text.
func (s *silence) Error() string { return "no answer from the API server" }

// breaker is the back-off of one API.
type breaker struct {
	places   chan struct{} // holds one for each caller that may read
	inFlight int
	failures int       // in a row; reads that were in flight together count once
	failed   time.Time // the latest failure
	until    time.Time // no read begins before
}

// begin records the beginning of a read. It returns a *silence if the read must not be sent.
func (b *breaker) begin(now time.Time) *silence {
	switch {
	case now.Before(b.until):
		return &silence{b.until.Sub(now)}
	case b.failures > 0 && b.inFlight > 0: // one read at a time tries the API
		return &silence{hangs}
	}
	b.inFlight++
	return nil
}

// end records the result of a read. Only a read that hung, or whose conversion webhook failed, counts against the API. A cancelled read proves nothing.
func (b *breaker) end(begun time.Time, failed error, now time.Time) {
	b.inFlight--
	switch {
	case errors.Is(failed, context.Canceled):
	case failed == nil, !errors.Is(failed, context.DeadlineExceeded) && now.Sub(begun) < hangs && !conversion.Failed(failed):
		b.failures, b.until = 0, time.Time{}
	case b.failures == 0 || begun.After(b.failed):
		b.failures++
		b.failed, b.until = now, now.Add(pauseAfter(b.failures))
	}
}
