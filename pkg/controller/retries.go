package controller

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// Rates of retries of a loop. A retry takes one token per request of the failed sync, at least one. First retries
// have a bucket of their own, so they never wait for keys that fail repeatedly. While most first syncs fail, as of all
// pods of a failed zone behind a broken webhook, a first sync needs tokens too: as many as the last failed first sync
// sent requests.
const (
	failedRequestsLimit                      = 2000 // requests of failed first syncs, less those of successful syncs
	maxCountedRequests                       = 20   // per sync; otherwise one long sync would outweigh many short syncs
	firstRetriesPerSecond, firstRetriesBurst = 20, 200
	laterRetriesPerSecond, laterRetriesBurst = 30, 30
	conflictRetries                          = 8 // 1.3 s at the default MinBackoff; further ones in a row are failures
)

// termQueue is the queue of one term. A failed key leaves the queue only with a token, even if an event adds the
// key.
type termQueue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	conflictBackoff    workqueue.TypedRateLimiter[K] // back-off after conflicts and cancelled requests
	first, later       workqueue.TypedInterface[K]   // keys that wait for a token
	failing            workqueue.TypedInterface[K]   // keys whose delay recordSuccess may end, oldest failure first
	failingLock        sync.Mutex                    // held by the only reader of failing
	admitted           sync.Map                      // keys that have a token
	tokens             sync.Map                      // tokens that a key takes, by key
	recoveries         chan struct{}                 // receives when a failing key succeeds
	successes          chan struct{}                 // receives when a key succeeds
	failedRequests     atomic.Int32                  // see failedRequestsLimit
	lastFailedRequests atomic.Int32                  // requests of the last failed first sync
}

// recordFailure retries a key with back-off.
func (q *termQueue[K]) recordFailure(key K, requests int32) {
	if q.NumRequeues(key) == 0 {
		q.lastFailedRequests.Store(requests)
		if q.failedRequests.Load() < 2*failedRequestsLimit { // one success does not end the limit
			q.failedRequests.Add(countedRequests(requests))
		}
	}
	q.tokens.Store(key, requests)
	q.failing.Add(key)
	q.AddRateLimited(key)
}

// countedRequests returns the requests of a sync that count for failedRequests.
func countedRequests(requests int32) int32 { return min(max(requests, 1), maxCountedRequests) }

// recordSuccess ends the back-off of a key. A waiting key then needs no token, because the cause may be gone. For the
// same reason, a key that had failed repeatedly ends the delay of two other failing keys. A sync that only requeues
// counts as a success.
func (q *termQueue[K]) recordSuccess(key K, requests int32) {
	if q.failedRequests.Load() > 0 && q.failedRequests.Add(-countedRequests(requests)) < 0 {
		q.failedRequests.Store(0)
	}
	timing.Signal(q.successes)
	failures := q.NumRequeues(key)
	q.Forget(key)
	q.conflictBackoff.Forget(key)
	if failures > 0 {
		timing.Signal(q.recoveries)
	}
	q.failingLock.Lock()
	defer q.failingLock.Unlock()
	// Most single failures have a cause of their own.
	for woken := 0; failures > 1 && woken < 2 && q.failing.Len() > 0; {
		other, _ := q.failing.Get()
		q.failing.Done(other)
		if q.NumRequeues(other) > 0 { // it keeps its count of failures
			q.Add(other)
			woken++
		}
	}
}

// admitsKey reports whether a key may be synced now. A key that needs a token is queued for a token instead.
func (q *termQueue[K]) admitsKey(key K) bool {
	if _, admitted := q.admitted.LoadAndDelete(key); admitted {
		return true
	}
	switch failures := q.NumRequeues(key); {
	case failures == 0 && q.failedRequests.Load() < failedRequestsLimit:
		return true
	case failures == 0:
		q.tokens.Store(key, q.lastFailedRequests.Load())
		q.first.Add(key)
	case failures == 1:
		q.first.Add(key)
	default:
		q.later.Add(key)
	}
	return false
}

// admitWaiting returns keys to the queue, at the rate of the bucket or one per signal, until the term ends.
func (q *termQueue[K]) admitWaiting(term context.Context, clk clock.Clock,
	waiting workqueue.TypedInterface[K], bucket *rate.Limiter, signal <-chan struct{}) {
	for key, shutdown := waiting.Get(); !shutdown; key, shutdown = waiting.Get() {
		waiting.Done(key)
		stored, _ := q.tokens.LoadAndDelete(key)
		tokens, _ := stored.(int32) // 0 after a conflict or without a sync
		if waiting == q.first {
			tokens = min(tokens, firstRetriesBurst) // most requests of a long sync may have succeeded
		}
		now := clk.Now()
		token := bucket.ReserveN(now, 1)
		if delay := token.DelayFrom(now); delay > 0 {
			timer := clk.NewTimer(delay)
			select {
			case <-timer.C():
			case <-signal:
				token.CancelAt(clk.Now())
				tokens = 1
			case <-term.Done():
			}
			timer.Stop()
		}
		for range tokens - 1 { // the next key waits for these tokens
			bucket.ReserveN(clk.Now(), 1)
		}
		q.admitted.Store(key, nil)
		q.Add(key)
	}
}

// groupQueue is the storage of a workqueue. Groups take turns, so many keys of one group do not delay other groups. A
// new group is next, and of one group the key that was added last. Many failing keys delay no key that fails once.
type groupQueue[K comparable] struct {
	group func(K) string
	keys  map[string][]K
	turns []string // groups with keys; the last one is next
}

func (q *groupQueue[K]) Touch(K) {}

// Len returns the number of groups with keys. A workqueue waits while Len is 0.
func (q *groupQueue[K]) Len() int { return len(q.turns) }

func (q *groupQueue[K]) Push(key K) {
	name := q.group(key)
	if len(q.keys[name]) == 0 {
		q.turns = append(q.turns, name)
	}
	q.keys[name] = append(q.keys[name], key)
}

func (q *groupQueue[K]) Pop() K {
	next := len(q.turns) - 1
	name := q.turns[next]
	keys := q.keys[name]
	last := len(keys) - 1
	q.turns, q.keys[name] = q.turns[:next], keys[:last]
	if last > 0 {
		q.turns = slices.Insert(q.turns, 0, name)
	} else {
		delete(q.keys, name)
	}
	return keys[last]
}
