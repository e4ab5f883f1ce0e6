package app

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// events sends the controllers' events. They pass no fence: an event says what was done and does nothing. Each controller has a queue and a
// sender of its own, so that a storm of events of one drops or delays none of another.
type events struct {
	client   corev1client.EventInterface
	channels []*channel // made before start

	cancel  context.CancelFunc // ends what is being sent; set by start
	sending sync.RWMutex       // read by whoever sends
}

// channel is the way of one controller's events, and its recorder: what is recorded before start is lost.
type channel struct {
	component   string
	sink        *markedSink
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder // nil before start
}

func newEvents(cfg *rest.Config) (*events, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the events' client: %w", err)
	}
	return &events{client: client.Events(corev1.NamespaceAll)}, nil
}

// recorder returns a recorder whose events name component as their source. It must be called before start.
func (e *events) recorder(component string) record.EventRecorder {
	c := &channel{component: component}
	e.channels = append(e.channels, c)
	return c
}

// start begins to send. What cannot be sent is logged to the logger of ctx: without one, client-go would log to that of the process.
func (e *events) start(ctx context.Context) {
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, c := range e.channels {
		c.sink = &markedSink{client: e.client, within: e.until(ctx)}
		c.broadcaster = record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
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
	if c.recorder != nil {
		c.recorder.AnnotatedEventf(object, annotations, eventType, reason, format, args...)
	}
}

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
	c.recorder.Event(&corev1.ObjectReference{Kind: markerKind, UID: marker}, corev1.EventTypeNormal, "Flush", "")
	return reached
}

const (
	markerKind = "minikcm.marker"

	// markers is how many markers there are. client-go remembers each that it has seen, so they must be few, and after 25 events about one
	// object it lets one through in five minutes, so they must not be too few: 1,600 terms may end at once, and then one in five seconds.
	markers = 64
)

// request sends an event and returns it as the API server has it.
type request func(context.Context) (*corev1.Event, error)

// markedSink passes events on and markers not.
type markedSink struct {
	client corev1client.EventInterface
	within func(*corev1.Event, request) (*corev1.Event, error) // calls the request, with the context that it is sent with

	lock  sync.Mutex
	used  int           // markers so far
	found chan struct{} // nil if no marker is expected
}

// expect returns the next marker and a channel that is closed when it arrives. Only one marker is expected at a time.
func (s *markedSink) expect() (types.UID, <-chan struct{}) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.used++
	s.found = make(chan struct{})
	return s.marker(), s.found
}

// marker is the last one.
func (s *markedSink) marker() types.UID { return types.UID(strconv.Itoa(s.used % markers)) }

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
	return s.within(event, send)
}

// caught reports whether an event is a marker.
func (s *markedSink) caught(event *corev1.Event) bool {
	if event.InvolvedObject.Kind != markerKind {
		return false
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if event.InvolvedObject.UID == s.marker() && s.found != nil {
		close(s.found)
		s.found = nil
	}
	return true
}
