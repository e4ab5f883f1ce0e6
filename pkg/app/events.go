package app

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	droppedByLimit = "limit"
	droppedByQueue = "queue"

	// Warnings of one controller. Failures of many objects must not fill the API server with events.
	warningsPerSecond, warningsBurst = 10, 100

	// maxQueued is less than the 1,000 events that client-go queues. client-go drops further events without a
	// trace.
	maxQueued = 900

	// flushPeriod is the time between two looks at the queues.
	flushPeriod = 10 * time.Millisecond
)

// events sends the events of the controllers. Events pass no fence, because an event changes no other object.
// Each controller has a queue and a sender, so that an event storm of one controller drops or delays no event
// of another.
type events struct {
	client  corev1client.EventInterface
	dropped *prometheus.CounterVec
	queues  []*eventQueue // complete before startSending

	cancel  context.CancelFunc // set by startSending
	sending sync.RWMutex       // locked for reading while an event is sent
}

// eventQueue is the queue of one controller and its recorder. Events recorded before startSending are lost.
type eventQueue struct {
	component   string
	limit       *record.EventSourceObjectSpamFilter
	warnings    *rate.Limiter
	dropped     *prometheus.CounterVec // by reason
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder // nil before startSending

	queued atomic.Int64 // events that were recorded and not sent yet
}

func newEvents(cfg *rest.Config, metrics prometheus.Registerer) (*events, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the client of events: %w", err)
	}
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "controller_events_dropped_total",
		Help: "Events that were not sent, by reason: more about one object than 25 and one in five minutes, " +
			"or more warnings than 100 and ten a second (limit), or more than the API server accepts in time (queue).",
	}, []string{"controller", "reason"})
	metrics.MustRegister(dropped)
	return &events{client: client.Events(corev1.NamespaceAll), dropped: dropped}, nil
}

// newRecorder returns a recorder whose events name component as their source. It must be called before
// startSending.
func (e *events) newRecorder(component string) record.EventRecorder {
	q := &eventQueue{component: component, warnings: rate.NewLimiter(warningsPerSecond, warningsBurst),
		dropped: e.dropped.MustCurryWith(prometheus.Labels{"controller": component})}
	// These are the limits of client-go's correlator, which drops an event only after it was correlated and
	// its patch was made.
	q.limit = record.NewEventSourceObjectSpamFilter(4096, 25, 1./300, clock.RealClock{}, func(e *corev1.Event) string {
		return e.Type + e.InvolvedObject.Kind + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name + "/" + string(e.InvolvedObject.UID)
	})
	for _, reason := range []string{droppedByLimit, droppedByQueue} {
		q.dropped.WithLabelValues(reason)
	}
	e.queues = append(e.queues, q)
	return q
}

// startSending begins to send. Failures are logged to the logger of ctx; without a context, client-go would use the
// logger of the process.
func (e *events) startSending(ctx context.Context) {
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, q := range e.queues {
		// q.limit replaces the filter of the correlator.
		q.broadcaster = record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
			record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: math.MaxInt32}))
		q.recorder = q.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: q.component}).WithLogger(klog.FromContext(ctx))
		q.broadcaster.StartStructuredLogging(3)
		q.broadcaster.StartRecordingToSink(sink{e.client, e.newSender(ctx, q)})
	}
}

// stopSending drops the events that were not sent yet. No event is sent after stopSending has returned.
func (e *events) stopSending() {
	e.cancel()
	e.sending.Lock() // waits for cancelled requests
	defer e.sending.Unlock()
	for _, q := range e.queues {
		q.broadcaster.Shutdown()
	}
}

// flush waits until every event recorded before has been sent, or ctx has ended.
func (e *events) flush(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, flushPeriod, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(e.queues, func(q *eventQueue) bool { return q.queued.Load() > 0 }), nil
	})
}

// Event implements record.EventRecorder.
func (q *eventQueue) Event(object runtime.Object, eventType, reason, message string) {
	q.AnnotatedEventf(object, nil, eventType, reason, "%s", message)
}

// Eventf implements record.EventRecorder.
func (q *eventQueue) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	q.AnnotatedEventf(object, nil, eventType, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (q *eventQueue) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	if q.recorder == nil {
		return
	}
	if about, err := reference.GetReference(scheme.Scheme, object); err == nil { // q.recorder logs the error
		if q.limit.Filter(&corev1.Event{InvolvedObject: *about, Type: eventType}) || eventType == corev1.EventTypeWarning && !q.warnings.Allow() {
			q.dropped.WithLabelValues(droppedByLimit).Inc()
			return
		}
		if q.queued.Load() >= maxQueued {
			q.dropped.WithLabelValues(droppedByQueue).Inc()
			return
		}
		q.queued.Add(1)
		object = about
	}
	q.recorder.AnnotatedEventf(object, annotations, eventType, reason, format, args...)
}

// request sends an event and returns the event of the response.
type request func(context.Context) (*corev1.Event, error)

// newSender returns a function that sends the events of q, in order, until ctx ends. Later events count as sent,
// or client-go would send them again.
func (e *events) newSender(ctx context.Context, q *eventQueue) func(*corev1.Event, bool, request) (*corev1.Event, error) {
	var last *corev1.Event // client-go sends an event again after an error
	return func(event *corev1.Event, patch bool, send request) (*corev1.Event, error) {
		e.sending.RLock()
		defer e.sending.RUnlock()
		sent, err := send(ctx)
		if event != last && !(patch && apierrors.IsNotFound(err)) { // client-go creates an event that cannot be patched
			last = event
			q.queued.Add(-1)
		}
		if ctx.Err() != nil {
			return event, nil
		}
		return sent, err
	}
}

// sink implements record.EventSink.
type sink struct {
	client corev1client.EventInterface
	send   func(event *corev1.Event, patch bool, send request) (*corev1.Event, error)
}

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.send(event, false, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.CreateWithEventNamespaceWithContext(ctx, event)
	})
}

func (s sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.send(event, true, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.PatchWithEventNamespaceWithContext(ctx, event, data)
	})
}

// Update is not called by client-go v0.37.
func (s sink) Update(event *corev1.Event) (*corev1.Event, error) { return s.Create(event) }
