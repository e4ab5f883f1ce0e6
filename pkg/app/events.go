package app

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// events sends the controllers' events. They pass no fence: an event says what was done and does nothing. Each controller has a queue and a
// sender of its own, so that a storm of events of one drops or delays none of another.
type events struct {
	client   corev1client.EventInterface
	dropped  *prometheus.CounterVec
	channels []*channel // made before start

	cancel  context.CancelFunc // ends what is being sent; set by start
	sending sync.RWMutex       // read by whoever sends
}

// channel is the way of one controller's events, and its recorder: what is recorded before start is lost.
type channel struct {
	component   string
	limit       *record.EventSourceObjectSpamFilter
	warnings    *rate.Limiter          // of all objects
	dropped     *prometheus.CounterVec // by reason
	sink        *markedSink
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder // nil before start
}

func newEvents(cfg *rest.Config, metrics prometheus.Registerer) (*events, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the events' client: %w", err)
	}
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "controller_events_dropped_total",
		Help: "Events that were not sent, by reason: more about one object than 25 and one in five minutes, or more warnings than 100 and ten a second (limit), or more than the API server accepts in time (queue).",
	}, []string{"controller", "reason"})
	metrics.MustRegister(dropped)
	return &events{client: client.Events(corev1.NamespaceAll), dropped: dropped}, nil
}

// recorder returns a recorder whose events name component as their source. It must be called before start.
func (e *events) recorder(component string) record.EventRecorder {
	c := &channel{component: component, warnings: rate.NewLimiter(warningsPerSecond, warningsBurst), dropped: e.dropped.MustCurryWith(prometheus.Labels{"controller": component})}
	// The limit of client-go's correlator, which applies it after the event was correlated and its patch was made.
	c.limit = record.NewEventSourceObjectSpamFilter(4096, 25, 1./300, clock.RealClock{}, func(e *corev1.Event) string {
		return e.Type + e.InvolvedObject.Kind + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name + "/" + string(e.InvolvedObject.UID)
	})
	for _, reason := range []string{droppedByLimit, droppedByQueue} {
		c.dropped.WithLabelValues(reason)
	}
	e.channels = append(e.channels, c)
	return c
}

// start begins to send. What cannot be sent is logged to the logger of ctx: without one, client-go would log to that of the process.
func (e *events) start(ctx context.Context) {
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, c := range e.channels {
		c.sink = &markedSink{client: e.client, within: e.until(ctx)}
		c.broadcaster = record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
			record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: math.MaxInt32})) // c.limit comes first
		c.recorder = c.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: c.component}).WithLogger(klog.FromContext(ctx))
		c.broadcaster.StartStructuredLogging(4)
		c.broadcaster.StartRecordingToSink(c.sink)
	}
}

// until returns a function that sends an event with ctx. What is given up because ctx has ended counts as sent, or it would be sent once more.
func (e *events) until(ctx context.Context) func(*corev1.Event, request) (*corev1.Event, error) {
	return func(event *corev1.Event, send request) (*corev1.Event, error) {
		e.sending.RLock()
		defer e.sending.RUnlock()
		sent, err := send(ctx)
		if ctx.Err() != nil {
			return event, nil
		}
		return sent, err
	}
}

// stop gives up what was not sent yet. Nothing is sent any more when it returns.
func (e *events) stop() {
	e.cancel()
	e.sending.Lock() // waits for those that were cancelled
	defer e.sending.Unlock()
	for _, c := range e.channels {
		c.broadcaster.Shutdown()
	}
}

// Event implements record.EventRecorder.
func (c *channel) Event(object runtime.Object, eventType, reason, message string) {
	c.AnnotatedEventf(object, nil, eventType, reason, "%s", message)
}

// Eventf implements record.EventRecorder.
func (c *channel) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	c.AnnotatedEventf(object, nil, eventType, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (c *channel) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	if c.recorder == nil {
		return
	}
	if about, err := reference.GetReference(scheme.Scheme, object); err == nil { // the recorder logs the error
		if c.limit.Filter(&corev1.Event{InvolvedObject: *about, Type: eventType}) || eventType == corev1.EventTypeWarning && !c.warnings.Allow() {
			c.dropped.WithLabelValues(droppedByLimit).Inc()
			return
		}
		if c.sink.queued.Load() >= maxQueued {
			c.dropped.WithLabelValues(droppedByQueue).Inc()
			return
		}
		c.sink.queued.Add(1)
		object = about
	}
	c.recorder.AnnotatedEventf(object, annotations, eventType, reason, format, args...)
}

const (
	droppedByLimit = "limit"
	droppedByQueue = "queue"

	// Warnings of one controller. A failure of many objects does not fill the API server with events.
	warningsPerSecond, warningsBurst = 10, 100

	// maxQueued is less than the 1,000 events that client-go queues. It drops further ones without a trace, flush markers among them.
	maxQueued = 900
)

// flush waits until every event recorded before has been sent, or ctx has ended.
func (e *events) flush(ctx context.Context) {
	var reached []<-chan struct{}
	for _, c := range e.channels {
		reached = append(reached, c.mark())
	}
	for _, r := range reached {
		select {
		case <-r:
		case <-ctx.Done():
			return
		}
	}
}

// mark returns a channel that is closed when every event recorded before has been sent. Events are sent in order, so a marker is sent behind
// them that gets no further than the sink.
func (c *channel) mark() <-chan struct{} {
	marker, reached := c.sink.expect()
	c.recorder.Event(&corev1.ObjectReference{Kind: markerKind, ResourceVersion: marker}, corev1.EventTypeNormal, "Flush", "")
	return reached
}

// markerKind is the kind of the object of a marker. Markers differ in its resource version: client-go keeps no record per version.
const markerKind = "minikcm.marker"

// request sends an event and returns it as the API server has it.
type request func(context.Context) (*corev1.Event, error)

// markedSink passes events on and markers not.
type markedSink struct {
	client corev1client.EventInterface
	within func(*corev1.Event, request) (*corev1.Event, error) // calls the request, with the context that it is sent with

	queued atomic.Int64  // events that were recorded and not sent yet
	last   *corev1.Event // the event that was sent last, or is sent again

	lock  sync.Mutex
	used  int           // markers so far
	found chan struct{} // nil if no marker is expected
}

// expect returns the next marker and a channel that is closed when it arrives. Only one marker is expected at a time.
func (s *markedSink) expect() (string, <-chan struct{}) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.used++
	s.found = make(chan struct{})
	return strconv.Itoa(s.used), s.found
}

// Create implements record.EventSink.
func (s *markedSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.send(event, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.CreateWithEventNamespaceWithContext(ctx, event)
	})
}

// Patch implements record.EventSink. It is called for what was seen before.
func (s *markedSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.send(event, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.PatchWithEventNamespaceWithContext(ctx, event, data)
	})
}

// Update implements record.EventSink. client-go v0.37 does not call it.
func (s *markedSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.send(event, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.UpdateWithEventNamespaceWithContext(ctx, event)
	})
}

func (s *markedSink) send(event *corev1.Event, send request) (*corev1.Event, error) {
	if s.caught(event) {
		return event, nil
	}
	if event != s.last { // client-go sends an event again after an error, and creates it if it cannot be patched
		s.last = event
		defer s.queued.Add(-1)
	}
	return s.within(event, send)
}

// caught reports whether an event is a marker.
func (s *markedSink) caught(event *corev1.Event) bool {
	if event.InvolvedObject.Kind != markerKind {
		return false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if event.InvolvedObject.ResourceVersion == strconv.Itoa(s.used) && s.found != nil {
		close(s.found)
		s.found = nil
	}
	return true
}
