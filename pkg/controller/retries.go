package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Rates of the failing keys of a loop. First retries have a bucket of their own, so they never wait for
// keys that fail repeatedly. A sync takes one token per request, at least one; a first retry takes one
// token.
const (
	firstTriesPerSecond, firstTriesBurst     = 30, 1 // first syncs, once most first syncs fail
	firstRetriesPerSecond, firstRetriesBurst = 20, 200
	laterRetriesPerSecond, laterRetriesBurst = 30, 30
	failedTriesLimit                         = 200 // requests of failed first syncs from which first syncs take tokens
	conflictRetries                          = 8   // within 1.3 s; further conflicts in a row are failures
)

// termQueue is the queue of one term. A failed key leaves the queue only with a token, even if an event
// adds the key. While most first syncs fail, this also holds for keys that have not failed.
type termQueue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	cut                   workqueue.TypedRateLimiter[K] // back-off after conflicts and cancelled requests
	untried, first, later workqueue.TypedInterface[K]   // keys that wait for a token
	admitted              sync.Map                      // keys that have a token
	requests              sync.Map                      // number of requests of the last failed sync, by key
	recovered             chan struct{}                 // receives when a failing key succeeds
	passed                chan struct{}                 // receives when a key succeeds
	tries                 *rate.Limiter
	failedTries           atomic.Int32 // see failedTriesLimit
}

func (q *termQueue[K]) ShutDown() {
	q.TypedRateLimitingInterface.ShutDown()
	q.untried.ShutDown()
	q.first.ShutDown()
	q.later.ShutDown()
}

// retryLater retries a key with back-off. requests is the number of requests of the failed sync.
func (q *termQueue[K]) retryLater(key K, requests int32, now time.Time) {
	switch {
	case q.NumRequeues(key) > 0:
	case q.failedTries.Load() < failedTriesLimit:
		q.failedTries.Add(max(requests, 1))
	default:
		for range requests - 1 { // the next key waits for these tokens
			q.tries.ReserveN(now, 1)
		}
	}
	q.requests.Store(key, requests)
	q.AddRateLimited(key)
}

// recordSuccess ends the back-off of a key. The next failing key needs no token, because the cause may be gone.
func (q *termQueue[K]) recordSuccess(key K, requests int32) {
	if q.failedTries.Load() > 0 && q.failedTries.Add(-requests) < 0 {
		q.failedTries.Store(0)
	}
	signal := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	signal(q.passed)
	if q.NumRequeues(key) > 0 {
		signal(q.recovered)
	}
	q.Forget(key)
	q.cut.Forget(key)
}

// admitsKey reports whether a key may be synced now. A key that needs a token is queued for a token instead.
func (q *termQueue[K]) admitsKey(key K) bool {
	_, admitted := q.admitted.LoadAndDelete(key)
	failures := q.NumRequeues(key)
	switch {
	case admitted || failures == 0 && q.failedTries.Load() < failedTriesLimit:
		return true
	case failures == 0:
		q.untried.Add(key)
	case failures == 1:
		q.first.Add(key)
	default:
		q.later.Add(key)
	}
	return false
}

// serveLine returns keys to the queue, at the rate of the bucket or one per signal, until the queue is shut
// down.
func (q *termQueue[K]) serveLine(term context.Context, clk clock.Clock, line workqueue.TypedInterface[K], bucket *rate.Limiter, signal <-chan struct{}) {
	for key, shutdown := line.Get(); !shutdown; key, shutdown = line.Get() {
		line.Done(key)
		further := int32(0)
		if requests, ok := q.requests.LoadAndDelete(key); ok && line == q.later {
			further = requests.(int32) - 1
		}
		now := clk.Now()
		token := bucket.ReserveN(now, 1)
		if delay := token.DelayFrom(now); delay > 0 {
			timer := clk.NewTimer(delay)
			select {
			case <-timer.C():
			case <-signal:
				token.CancelAt(clk.Now())
				further = 0
			case <-term.Done():
			}
			timer.Stop()
		}
		for range further { // the next key waits for these
			bucket.ReserveN(clk.Now(), 1)
		}
		q.admitted.Store(key, nil)
		q.Add(key)
	}
}

// newestFirst is the storage of a workqueue that returns the key that was added last.
type newestFirst[K comparable] struct{ keys []K }

func (q *newestFirst[K]) Touch(K)    {}
func (q *newestFirst[K]) Push(key K) { q.keys = append(q.keys, key) }
func (q *newestFirst[K]) Len() int   { return len(q.keys) }

func (q *newestFirst[K]) Pop() K {
	last := len(q.keys) - 1
	key := q.keys[last]
	if q.keys = q.keys[:last]; last == 0 {
		q.keys = nil // release the memory of many keys
	}
	return key
}
