package controller

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Rates of the retries of all failing keys of a loop. First retries have a bucket of their own: they do not wait for keys that fail repeatedly. A later
// retry takes a token for each request of the last sync, and one at least.
const (
	firstRetriesPerSecond, firstRetriesBurst = 20, 200
	laterRetriesPerSecond, laterRetriesBurst = 30, 30
	conflictRetries                          = 8 // within 1.3 s; further conflicts in a row are failures, such as of a webhook
)

// termQueue is the queue of one term. A key that has failed leaves it only with a token, even if an event adds the key.
type termQueue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	cut          workqueue.TypedRateLimiter[K] // back-off after conflicts and cancelled requests
	first, later workqueue.TypedInterface[K]   // failing keys that wait for a token
	admitted     sync.Map                      // failing keys that have a token
	requests     sync.Map                      // number of requests of the last failed sync, by key
	recovered    chan struct{}                 // receives when a failing key succeeds
}

func (q *termQueue[K]) ShutDown() {
	q.TypedRateLimitingInterface.ShutDown()
	q.first.ShutDown()
	q.later.ShutDown()
}

// Forget ends the back-off of a key. If the key was failing, the next failing key need not wait for a token: the cause may be gone.
func (q *termQueue[K]) Forget(key K) {
	if q.NumRequeues(key) > 0 {
		select {
		case q.recovered <- struct{}{}:
		default:
		}
	}
	q.TypedRateLimitingInterface.Forget(key)
	q.cut.Forget(key)
}

// admits reports whether a key may be synced now. A failing key without a token is lined up for one instead.
func (q *termQueue[K]) admits(key K) bool {
	_, admitted := q.admitted.LoadAndDelete(key)
	failures := q.NumRequeues(key)
	switch {
	case admitted || failures == 0:
		return true
	case failures == 1:
		q.first.Add(key)
	default:
		q.later.Add(key)
	}
	return false
}

// serveLine returns the keys of a line to the queue, at the rate of the bucket or one for each key that recovers, until the queue is shut down.
func (q *termQueue[K]) serveLine(term context.Context, clk clock.Clock, line workqueue.TypedInterface[K], bucket *rate.Limiter) {
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
			case <-q.recovered:
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
