package app

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// events sends the controllers' events. They pass no fence: an event says what was done and does nothing. Each controller has a queue and a
// sender of its own, so that a storm of events of one drops or delays none of another.
type events struct {
	sink     record.EventSink
	channels []*channel // made before start
}

// channel is the way of one controller's events.
type channel struct {
	broadcaster record.EventBroadcaster
	markers     record.EventRecorder
	sink        *markedSink
}

func newEvents(cfg *rest.Config) (*events, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the events' client: %w", err)
	}
	return &events{sink: &corev1client.EventSinkImpl{Interface: client.Events(corev1.NamespaceAll)}}, nil
}

// recorder returns a recorder whose events name component as their source. It must be called before start.
func (e *events) recorder(component string) record.EventRecorder {
	broadcaster := record.NewBroadcaster()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	e.channels = append(e.channels, &channel{broadcaster, recorder, &markedSink{EventSink: e.sink}})
	return recorder
}

// start begins to send. Events recorded before are lost.
func (e *events) start() {
	for _, c := range e.channels {
		c.broadcaster.StartStructuredLogging(4)
		c.broadcaster.StartRecordingToSink(c.sink)
	}
}

// stop gives up what was not sent yet.
func (e *events) stop() {
	for _, c := range e.channels {
		c.broadcaster.Shutdown()
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
	c.markers.Event(&corev1.ObjectReference{Kind: markerKind, UID: marker}, corev1.EventTypeNormal, "Flush", "")
	return reached
}

const (
	markerKind = "minikcm.marker"

	// markers is how many markers there are. client-go remembers each that it has seen, so they must be few, and after 25 events about one
	// object it lets one through in five minutes, so they must not be too few: 1,600 terms may end at once, and then one in five seconds.
	markers = 64
)

// markedSink passes events on and markers not.
type markedSink struct {
	record.EventSink

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
	if s.caught(event) {
		return event, nil
	}
	return s.EventSink.Create(event)
}

// Patch implements record.EventSink. It is called for what was seen before.
func (s *markedSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	if s.caught(event) {
		return event, nil
	}
	return s.EventSink.Patch(event, data)
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
