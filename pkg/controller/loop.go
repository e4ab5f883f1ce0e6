package controller

import (
	"cmp"
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

// Back-off of a failed key, doubled with every failure in a row.
const (
	defaultMinBackoff = 5 * time.Millisecond // client-go's default
	defaultMaxBackoff = time.Minute          // client-go's 1000 s outlast every outage
)

// LoopConfig configures a loop. Workers must be at least 1.
type LoopConfig struct {
	Controller string        // canonical name of the controller, for logs and metrics
	Queue      string        // name label of the workqueue metrics
	Workers    int           // concurrent syncs, slow ones excluded; never two of one key
	SlowAfter  time.Duration // a sync that takes longer is slow and gives its worker to another key; default 1 s
	MinBackoff time.Duration // default 5 ms
	MaxBackoff time.Duration // default 1 min
	Drain      time.Duration // time of running syncs after the end of a term; 0 means no limit
	Clock      clock.WithTicker
}

// Result is the result of a sync.
type Result struct {
	// RequeueAfter requests another sync of the key. Zero leaves that to the next event. The earliest
	// request for a key wins, and an event in between does not cancel the request. A sync that only
	// requeues counts as a success. Beside an error, RequeueAfter limits the back-off.
	RequeueAfter time.Duration
}

// Immediately is a RequeueAfter without delay. Zero would request no sync.
const Immediately = time.Nanosecond

// Reconcile changes the cluster towards the spec of one key. After an error the key is retried with back-off. The
// package comment lists the errors that are no failures.
type Reconcile[K comparable] func(ctx context.Context, key K) (Result, error)

// Loop calls Reconcile for keys. Add, AddAfter and Healthy may be called at any time from any goroutine.
type Loop[K comparable] struct {
	cfg       LoopConfig
	reconcile Reconcile[K]
	group     func(K) string // see GroupBy
	seconds   *prometheus.HistogramVec
	panics    prometheus.Counter
	scheduler *scheduler[K]
	failureLog
	queue atomic.Pointer[termQueue[K]] // nil outside a term; the limiter of failing keys is part of the queue
}

// NewLoop returns a loop and registers its metrics under the name of the queue.
func NewLoop[K comparable](cfg LoopConfig, reg prometheus.Registerer, reconcile Reconcile[K]) *Loop[K] {
	cfg.MinBackoff, cfg.MaxBackoff = cmp.Or(cfg.MinBackoff, defaultMinBackoff), cmp.Or(cfg.MaxBackoff, defaultMaxBackoff)
	cfg.SlowAfter = cmp.Or(cfg.SlowAfter, defaultSlowAfter)
	m := Metrics{prometheus.WrapRegistererWith(prometheus.Labels{"controller": cfg.Controller, "queue": cfg.Queue}, reg)}
	if _, ours := reg.(QueueMetrics); !ours {
		cfg.Queue = "" // queues without a name have no metrics
	}
	return &Loop[K]{
		cfg: cfg, reconcile: reconcile, group: func(K) string { return "" },
		scheduler: &scheduler[K]{slowAfter: cfg.SlowAfter, maxDetached: detachedPerWorker * cfg.Workers, running: map[*run]struct{}{}, groups: map[string]*group[K]{}},
		seconds: m.HistogramVec("controller_sync_duration_seconds", "Duration of one sync of one key, by result: done; "+
			"requeue (the sync requested another sync after a delay); error (the key is retried; conflicts and panics included); "+
			"canceled (a request of the sync was cancelled, for example at the end of the term).",
			[]float64{.0005, .001, .005, .01, .05, .1, .5, 1, 5, 30, 120}, Label{"result", "done", "requeue", "error", "canceled"}),
		panics: m.CounterVec("controller_sync_panics_total", "Syncs that panicked; their keys were retried.").WithLabelValues(),
	}
}

// GroupBy makes the keys of a group share the slow syncs, as a rule the keys of a namespace: slow syncs of
// one group do not delay other groups. Keys with an empty group share with no other key. Call GroupBy before the
// first term.
func (l *Loop[K]) GroupBy(group func(K) string) *Loop[K] {
	l.group = group
	return l
}

// Add queues a key. Outside of a term Add drops the key.
func (l *Loop[K]) Add(key K) {
	if q := l.queue.Load(); q != nil {
		q.Add(key)
	}
}

// AddAfter queues a key after d at the latest. Outside of a term AddAfter drops the key.
func (l *Loop[K]) AddAfter(key K, d time.Duration) {
	if q := l.queue.Load(); q != nil {
		q.AddAfter(key, d)
	}
}

// Run works for one term: it queues every key that all returns, and blocks until ctx is done and every sync
// has returned. Terms must not overlap.
func (l *Loop[K]) Run(ctx context.Context, all func() []K) { l.runTerm(ctx, l.startQueue(all)) }

// Start calls Run in a goroutine of the group, for a loop that other loops fill: keys added after Start
// returns are not lost. The caller waits for the group before the next term. all may be nil.
func (l *Loop[K]) Start(ctx context.Context, in *sync.WaitGroup, all func() []K) {
	q := l.startQueue(all)
	in.Go(func() { l.runTerm(ctx, q) })
}

// startQueue creates the queue before it reads the keys, so that no event is lost in between.
func (l *Loop[K]) startQueue(all func() []K) *termQueue[K] {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[K]
	q := &termQueue[K]{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(backoff(l.cfg.MinBackoff, l.cfg.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[K]{Name: l.cfg.Queue, Clock: l.cfg.Clock}),
		conflictBackoff: backoff(l.cfg.MinBackoff, l.cfg.MaxBackoff),
		first:           workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: &groupQueue[K]{group: l.group, keys: map[string][]K{}}}),
		later:           workqueue.NewTyped[K](),
		failing:         workqueue.NewTyped[K](),
		recoveries:      make(chan struct{}, l.cfg.Workers), successes: make(chan struct{}, l.cfg.Workers),
	}
	l.queue.Store(q)
	if all != nil {
		for _, key := range all() {
			q.Add(key)
		}
	}
	return q
}

func (l *Loop[K]) runTerm(term context.Context, q *termQueue[K]) {
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(term), termKey{}, term))
	defer cancel()
	var syncs sync.WaitGroup
	l.scheduler.startWorker = func() { syncs.Go(func() { l.runWorker(term, ctx, q) }) }
	for range l.cfg.Workers {
		l.scheduler.startWorker()
	}
	first, later := rate.NewLimiter(firstRetriesPerSecond, firstRetriesBurst), rate.NewLimiter(laterRetriesPerSecond, laterRetriesBurst)
	syncs.Go(func() { q.admitWaiting(term, l.cfg.Clock, q.first, first, q.successes) })
	syncs.Go(func() { q.admitWaiting(term, l.cfg.Clock, q.later, later, q.recoveries) })

	<-term.Done()
	l.queue.Store(nil)
	for _, queue := range []interface{ ShutDown() }{q, q.first, q.later} {
		queue.ShutDown()
	}
	if l.cfg.Drain > 0 {
		defer time.AfterFunc(l.cfg.Drain, cancel).Stop()
	}
	syncs.Wait()
	l.failureLog.endPeriod()
}

// runWorker syncs keys until another worker runs in its place or the term ends. At the end of the term it empties the
// queue, because remaining keys would count in the depth metric. ctx is the context of the syncs, which outlasts term.
func (l *Loop[K]) runWorker(term, ctx context.Context, q *termQueue[K]) {
	for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
		if term.Err() != nil || !q.admitsKey(key) {
			q.Done(key)
			continue
		}
		r := l.scheduler.startSync(key, l.group(key), l.cfg.Clock.Now())
		if r == nil {
			q.admitted.Store(key, nil) // a withheld key keeps its token
			q.Done(key)
			continue
		}
		l.syncKey(ctx, q, key, r)
		for _, key := range l.scheduler.endSync(r) {
			q.Add(key)
		}
		if r.detached && term.Err() == nil {
			return
		}
	}
}

type termKey struct{}

// ErrDraining is the error of a sync that stopped because of [Draining]. It is a context.Canceled.
var ErrDraining = fmt.Errorf("the term has ended: %w", context.Canceled)

// Term returns the context of the term of a sync, or Background for any other context.
func Term(ctx context.Context) context.Context {
	term, _ := ctx.Value(termKey{}).(context.Context)
	return cmp.Or(term, context.Background())
}

// Draining reports whether the term of a sync has ended. A sync that has many requests left checks it
// before each request, and leaves the rest to the next leader. It returns false for the context of no sync.
func Draining(ctx context.Context) bool { return Term(ctx).Err() != nil }

func (l *Loop[K]) syncKey(ctx context.Context, q *termQueue[K], key K, r *run) {
	defer q.Done(key)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", l.cfg.Controller, "key", key)
	start := l.cfg.Clock.Now()
	ctx = httptrace.WithClientTrace(klog.NewContext(ctx, logger), &httptrace.ClientTrace{
		GetConn: func(string) {
			r.recordProgress(l.cfg.Clock.Now())
			r.requests.Add(1)
		},
		GotFirstResponseByte: func() { r.recordProgress(l.cfg.Clock.Now()) },
	})
	var result Result
	err := Contain(func() (err error) {
		result, err = l.reconcile(ctx, key)
		return err
	})
	if panicked := PanicError(""); errors.As(err, &panicked) {
		l.panics.Inc()
	} else if errors.Is(err, ErrOutdated) {
		result, err = Result{RequeueAfter: ConsistencyRecheck}, nil
	}
	l.seconds.WithLabelValues(resultLabel(result, err)).Observe(l.cfg.Clock.Since(start).Seconds())
	switch {
	case errors.Is(err, context.Canceled), apierrors.IsConflict(err) && q.conflictBackoff.NumRequeues(key) < conflictRetries:
		logger.V(4).Info("Sync was cut short", "reason", err)
		q.AddAfter(key, q.conflictBackoff.When(key))
	case err != nil:
		if l.AdmitsLine(logger, err) {
			logger.Error(err, "Sync failed, the key will be retried")
		}
		q.recordFailure(key, r.requests.Load())
	default:
		q.recordSuccess(key, r.requests.Load())
	}
	if result.RequeueAfter > 0 {
		q.AddAfter(key, result.RequeueAfter)
	}
}

// Healthy returns an error if a sync has neither sent a request nor received a response for two minutes.
func (l *Loop[K]) Healthy() error { return l.scheduler.checkStuck(l.cfg.Clock.Now()) }
