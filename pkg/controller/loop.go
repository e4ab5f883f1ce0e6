package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Back-off of a key that failed: doubled from the first to the last with every failure in a row.
const (
	defaultMinBackoff = 5 * time.Millisecond // client-go's default controller rate limiter
	defaultMaxBackoff = time.Minute          // client-go's is 1000 s, which outlasts every outage it waits for
)

// LoopConfig says how a loop works. Workers must be at least 1.
type LoopConfig struct {
	Controller string        // canonical controller name, for logs and metrics
	Queue      string        // queue name: the name label of the workqueue metrics
	Workers    int           // syncs that run at once, slow ones apart; never two of one key
	Patience   time.Duration // a sync that runs for longer is slow: its worker goes on with another key; 0: one second
	MinBackoff time.Duration // 0: 5 ms
	MaxBackoff time.Duration // 0: one minute
	Drain      time.Duration // how long running syncs may go on after Run's context ended; 0: until they return
	Clock      clock.WithTicker
}

// Result of a sync.
type Result struct {
	// After asks for another sync of the key; zero leaves that to the next event. An earlier request for the same key wins,
	// and an event in between does not cancel it. Beside an error, After bounds the back-off of the key.
	RequeueAfter time.Duration
}

// AtOnce asks for another sync without delay: zero would ask for none.
const Immediately = time.Nanosecond

// Soonest is the shortest of the times to wait; those that are not positive ask for nothing. 0: none does.
func MinPositive(waits ...time.Duration) (least time.Duration) {
	for _, d := range waits {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// Reconcile brings one key a step closer to its spec. After an error the key is retried with back-off. A conflict and context.Canceled are no failures:
// they are not logged, and their retries take no tokens.
type Reconcile[K comparable] func(ctx context.Context, key K) (Result, error)

// Loop runs Reconcile for the keys it is given. Add, AddAfter and Healthy may be called at any time from any goroutine.
type Loop[K comparable] struct {
	cfg       LoopConfig
	reconcile Reconcile[K]
	due       func(K) time.Time // nil: keys are served in the order in which they came
	group     func(K) string    // nil: keys belong to no group
	metrics   *metrics
	scheduler *scheduler[K]
	failures  failureLog
	queue     atomic.Pointer[termQueue[K]] // nil outside a term
}

// NewLoop returns a loop that is not running. Its metrics are registered with reg under the queue's name.
func NewLoop[K comparable](cfg LoopConfig, reg prometheus.Registerer, reconcile Reconcile[K]) *Loop[K] {
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff = defaultMinBackoff
	}
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = defaultMaxBackoff
	}
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	metrics := newMetrics(reg, cfg.Controller, cfg.Queue)
	if _, ours := reg.(QueueMetrics); !ours {
		cfg.Queue = "" // what has no name has no metrics
	}
	return &Loop[K]{
		cfg: cfg, reconcile: reconcile, metrics: metrics, scheduler: newScheduler[K](cfg.Workers, cfg.Patience),
	}
}

// NewLoopByDeadline is like NewLoop for a loop that serves the waiting key with the earliest deadline first; a zero time is before all
// others, and equal ones are served in the order in which they came. due is asked each time a key is added, must not call
// the loop, and is called only during a term.
func NewLoopByDeadline[K comparable](cfg LoopConfig, reg prometheus.Registerer, due func(K) time.Time, reconcile Reconcile[K]) *Loop[K] {
	l := NewLoop(cfg, reg, reconcile)
	l.due, l.scheduler.due = due, due
	return l
}

// GroupBy makes the keys of one group, as a rule of one namespace, share: however slow their syncs are, those of other groups go on. Keys whose group
// is empty share with nobody. It must be called before the first term, and returns the loop.
func (l *Loop[K]) GroupBy(group func(K) string) *Loop[K] {
	l.group = group
	return l
}

// Add queues a key. Outside a term it does nothing.
func (l *Loop[K]) Add(key K) {
	if q := l.queue.Load(); q != nil {
		q.Add(key)
	}
}

// AddAfter queues a key once d has passed, or at once if d is not positive. Outside a term it does nothing.
func (l *Loop[K]) AddAfter(key K, d time.Duration) {
	if q := l.queue.Load(); q != nil {
		q.AddAfter(key, d)
	}
}

// Run works for one term: it queues every key that all names, then blocks until ctx has ended and every sync has returned.
// It must not be called again before it has returned.
func (l *Loop[K]) Run(ctx context.Context, all func() []K) { l.serve(ctx, l.begin(all)) }

// Start is Run in a goroutine of the group, for a loop that other loops fill: once it returns, no key they add is lost. A nil all names
// none. The caller waits for the group before the next term.
func (l *Loop[K]) Start(ctx context.Context, in *sync.WaitGroup, all func() []K) {
	q := l.begin(all)
	in.Go(func() { l.serve(ctx, q) })
}

// begin makes the queue first and asks for the keys second, so that no event falls between the two.
func (l *Loop[K]) begin(all func() []K) *termQueue[K] {
	q := l.newQueue()
	l.queue.Store(q)
	if all != nil {
		for _, key := range all() {
			q.Add(key)
		}
	}
	return q
}

func (l *Loop[K]) serve(ctx context.Context, q *termQueue[K]) {
	work, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), termKey{}, ctx.Done()))
	defer cancel()
	var syncs sync.WaitGroup
	syncs.Go(func() { l.dispatch(ctx, work, q, &syncs) })
	syncs.Go(func() {
		q.serveLine(ctx, l.cfg.Clock, q.untried, q.tries, q.passed)
	})
	syncs.Go(func() {
		q.serveLine(ctx, l.cfg.Clock, q.first, rate.NewLimiter(firstRetriesPerSecond, firstRetriesBurst), q.recovered)
	})
	syncs.Go(func() {
		q.serveLine(ctx, l.cfg.Clock, q.later, rate.NewLimiter(laterRetriesPerSecond, laterRetriesBurst), q.recovered)
	})
	syncs.Go(func() {
		l.failures.run(ctx, l.cfg.Clock, klog.LoggerWithValues(klog.FromContext(ctx), "controller", l.cfg.Controller))
	})

	<-ctx.Done()
	l.queue.Store(nil)
	q.ShutDown()
	if l.cfg.Drain > 0 {
		joined := make(chan struct{})
		defer close(joined)
		go l.cancelOverdue(joined, cancel)
	}
	syncs.Wait()
	l.scheduler.disband()
	for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() { // what is left there counts in the gauge of its depth
		q.Done(key)
	}
}

// dispatch starts a sync for one key after the other until the term ends.
func (l *Loop[K]) dispatch(term, work context.Context, q *termQueue[K], syncs *sync.WaitGroup) {
	for l.awaitVacancy(term) {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		if !q.admits(key) {
			q.Done(key)
			continue
		}
		group := ""
		if l.group != nil {
			group = l.group(key)
		}
		var r *run
		if term.Err() == nil { // the queue still hands out what it held when it was shut down
			r = l.scheduler.begin(key, group, l.cfg.Clock.Now())
		}
		if r == nil {
			q.Done(key)
			continue
		}
		syncs.Go(func() {
			l.sync(work, q, key, r)
			for _, key := range l.scheduler.end(r, l.cfg.Clock.Now()) {
				q.Add(key)
			}
		})
	}
}

// awaitVacancy blocks until a sync may begin. It reports false if the term has ended.
func (l *Loop[K]) awaitVacancy(term context.Context) bool {
	for term.Err() == nil {
		free, in := l.scheduler.vacancy(l.cfg.Clock.Now())
		if free {
			return true
		}
		if in == 0 {
			in = l.cfg.Patience // the limit on slow syncs is reached: the end of one is signalled on changed; the timer is a safety net only
		}
		timer := l.cfg.Clock.NewTimer(in)
		select {
		case <-timer.C():
		case <-l.scheduler.changed:
		case <-term.Done():
		}
		timer.Stop()
	}
	return false
}

func (l *Loop[K]) newQueue() *termQueue[K] {
	order := workqueue.DefaultQueue[K]()
	if l.due != nil {
		order = &byDeadline[K]{due: l.due}
	}
	newestFirst := func() workqueue.TypedInterface[K] { // an outage of many keys does not delay a key that fails only once
		newest := time.Time{}
		return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: &byDeadline[K]{due: func(K) time.Time {
			newest = newest.Add(-1)
			return newest
		}}})
	}
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[K]
	return &termQueue[K]{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(backoff(l.cfg.MinBackoff, l.cfg.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[K]{Name: l.cfg.Queue, Clock: l.cfg.Clock, DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
				workqueue.TypedDelayingQueueConfig[K]{Name: l.cfg.Queue, Clock: l.cfg.Clock, Queue: workqueue.NewTypedWithConfig(
					workqueue.TypedQueueConfig[K]{Name: l.cfg.Queue, Clock: l.cfg.Clock, Queue: order})})}),
		cut:       backoff(l.cfg.MinBackoff, l.cfg.MaxBackoff),
		untried:   newestFirst(),
		first:     newestFirst(),
		later:     workqueue.NewTyped[K](),
		recovered: make(chan struct{}, l.cfg.Workers),
		passed:    make(chan struct{}, l.cfg.Workers),
		tries:     rate.NewLimiter(firstTriesPerSecond, firstTriesBurst),
	}
}

type termKey struct{}

// ErrDraining is what a sync may return that stopped half-way because [Draining] told it to. It is a context.Canceled.
var ErrDraining = fmt.Errorf("the term has ended: %w", context.Canceled)

// Ended is closed when the term that a sync works for has ended; nil if ctx is that of no sync.
func TermDone(ctx context.Context) <-chan struct{} {
	ended, _ := ctx.Value(termKey{}).(<-chan struct{})
	return ended
}

// Draining reports whether the term that a sync works for has ended. A sync that still has many requests to send asks before each, and
// leaves the rest to the next leader, who cannot begin before it returns. ctx is that of the sync; of any other it is false.
func Draining(ctx context.Context) bool {
	select {
	case <-TermDone(ctx):
		return true
	default:
		return false
	}
}

// cancelOverdue cancels the syncs that are still running when the drain time is over.
func (l *Loop[K]) cancelOverdue(joined <-chan struct{}, cancel context.CancelFunc) {
	overdue := l.cfg.Clock.NewTimer(l.cfg.Drain)
	defer overdue.Stop()
	select {
	case <-overdue.C():
		cancel()
	case <-joined:
	}
}

// sync takes one key through a sync.
func (l *Loop[K]) sync(work context.Context, q *termQueue[K], key K, r *run) {
	defer q.Done(key)
	logger := klog.LoggerWithValues(klog.FromContext(work), "controller", l.cfg.Controller, "key", key)
	result, err := l.contained(l.traced(klog.NewContext(work, logger), r), key)
	l.metrics.observe(result, err, l.cfg.Clock.Since(r.start))
	switch {
	case errors.Is(err, context.Canceled), apierrors.IsConflict(err) && q.cut.NumRequeues(key) < conflictRetries:
		logger.V(4).Info("Sync was cut short", "reason", err)
		q.AddAfter(key, q.cut.When(key))
	case err != nil:
		if l.failures.admits(key, err) {
			// Not utilruntime.HandleError: that sleeps under a lock of the whole process, so one failing key would hold up the others.
			logger.Error(err, "Sync failed, the key will be retried")
		}
		q.fail(key, r.requests.Load(), l.cfg.Clock.Now())
	default:
		q.succeed(key, r.requests.Load())
	}
	if result.RequeueAfter > 0 {
		q.AddAfter(key, result.RequeueAfter)
	}
}

// traced returns a context whose requests are signs of life of the sync.
func (l *Loop[K]) traced(ctx context.Context, r *run) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { // a request is about to be sent
			r.sign(l.cfg.Clock.Now())
			r.requests.Add(1)
		},
		GotFirstResponseByte: func() { r.sign(l.cfg.Clock.Now()) },
	})
}

// contained makes an error of a panic: its key is retried like any other that failed.
func (l *Loop[K]) contained(ctx context.Context, key K) (result Result, err error) {
	err = Contain(func() (err error) {
		result, err = l.reconcile(ctx, key)
		return err
	})
	if panicked := (*PanicError)(nil); errors.As(err, &panicked) {
		l.metrics.panics.Inc()
	}
	return result, err
}

// Healthy fails when a sync has neither sent a request nor got an answer for two minutes. Outside a term it succeeds.
func (l *Loop[K]) Healthy() error { return l.scheduler.check(l.cfg.Clock.Now()) }
