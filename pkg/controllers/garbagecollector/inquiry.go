package garbagecollector

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/conversion"
)

const (
	// hangs is how long a question takes at least that counts as one that is not answered. The API server answers within milliseconds.
	hangs = 2 * time.Second
	// nearlyHangs is as long as hangs for somebody whose own time is that, and was spent in part before the question was sent.
	nearlyHangs = hangs * 9 / 10
	// hangingMost is how many questions to one API may hang before nobody asks another: one may be about something large.
	hangingMost = 2
	// probeFor is for how long others leave an API that did not answer to the one who tries it again: no question but that for a long list takes longer.
	probeFor = time.Minute
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

// inquiries share questions to the API server between all who have the same one. About one key only one goroutine asks at a time, and those who wait share
// the answer. Of one API few questions are in flight at once. If the API hangs, all others get a *silence error without asking, and now and then
// one is let through to try it: nobody is held up by an API that hangs.
type inquiries[K comparable, A any] struct {
	clock clock.PassiveClock
	most  int           // questions to one API at once
	all   chan struct{} // holds one for each question that is on its way; nil: only those to one API are counted

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
		if s := b.refusal(q.clock.Now()); s != nil {
			return s.again
		}
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
	refused := func() error { return q.refused(b) }
	if err := enter(ctx, i.turn, refused); err != nil {
		return none, err
	}
	defer func() { <-i.turn }()
	if a := q.latest(key); good(a) {
		return a, nil
	}
	if err := enter(ctx, b.places, refused); err != nil {
		return none, err
	}
	defer func() { <-b.places }()
	if q.all != nil { // to wait for others is not held against the API
		if err := enter(ctx, q.all, refused); err != nil {
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

// enter takes one of the places of a channel. It waits for turnPatience at most, until the term ends, and as long as it is not refused; nil: it never is.
func enter(ctx context.Context, places chan struct{}, refused func() error) error {
	if refused != nil {
		if err := refused(); err != nil {
			return err
		}
	}
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	patience, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	again := time.NewTicker(hangs / 2)
	defer again.Stop()
	for {
		select {
		case places <- struct{}{}:
			return nil
		case <-again.C:
			if refused == nil {
				continue
			}
			if err := refused(); err != nil {
				return err
			}
		case <-controller.TermDone(ctx):
			return noSlot(ctx)
		case <-patience.Done():
			return noSlot(ctx)
		}
	}
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

func (q *inquiries[K, A]) refused(b *breaker) error {
	q.lock.Lock()
	defer q.lock.Unlock()
	if s := b.refusal(q.clock.Now()); s != nil {
		return s
	}
	return nil
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
	b.end(begun)
	b.judge(begun, failed, q.clock.Now())
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

// Error says nothing of who asked last: it may have been about another's namespace, and that he ran out of time is not that the caller did. It is what
// answer.ForUsers says to whoever did ask.
func (s *silence) Error() string { return "no answer from the API server" }

// breaker is how an API has answered of late.
type breaker struct {
	places   chan struct{} // holds one for each question that is on its way
	asking   []time.Time   // when those were begun, in this order
	failures int           // in a row, of questions that hung; those that were asked together count as one
	failed   time.Time     // the latest of them
	until    time.Time     // nobody asks before
	probe    time.Time     // when the question was begun with which somebody tries it again; zero: nobody does
}

// refusal is why a question is not to be asked now; nil: it may be.
func (b *breaker) refusal(now time.Time) *silence {
	switch {
	case now.Before(b.until) && !b.probe.IsZero():
		return &silence{min(b.until.Sub(now), hangs)} // it may answer at any moment
	case now.Before(b.until):
		return &silence{b.until.Sub(now)}
	case b.failures == 0 && len(b.asking) >= hangingMost && now.Sub(b.asking[hangingMost-1]) >= hangs:
		return &silence{hangs}
	}
	return nil
}

// begin notes that a question is being asked, unless it must not be. After a failure it is the only one.
func (b *breaker) begin(now time.Time) *silence {
	if s := b.refusal(now); s != nil {
		return s
	}
	if b.failures > 0 {
		b.until, b.probe = now.Add(probeFor), now
	}
	b.asking = append(b.asking, now)
	return nil
}

// end notes that a question is over.
func (b *breaker) end(begun time.Time) {
	n := slices.IndexFunc(b.asking, begun.Equal)
	b.asking = slices.Delete(b.asking, n, n+1)
	if begun.Equal(b.probe) {
		b.probe = time.Time{}
	}
}

// judge notes the result of a question. Only one that hung, or whose conversion webhook failed, counts against the API: another error that comes at once
// costs nothing, and is shared like any answer.
// A question that its asker cut short, before it could be said to hang, proves nothing, and the next one may try.
func (b *breaker) judge(begun time.Time, failed error, now time.Time) {
	newer, took := b.failures == 0 || begun.After(b.failed), now.Sub(begun)
	late := errors.Is(failed, context.DeadlineExceeded)
	switch {
	case errors.Is(failed, context.Canceled), late && took < nearlyHangs:
		if newer {
			b.until = time.Time{} // the next one tries
		}
	case failed == nil, !late && took < hangs && !conversion.Failed(failed):
		b.failures, b.until = 0, time.Time{}
	case newer:
		b.failures++
		b.failed, b.until = now, now.Add(pauseAfter(b.failures))
	}
}
