package app

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"
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
	c := &channel{broadcaster: record.NewBroadcaster(), sink: &markedSink{EventSink: e.sink}}
	e.channels = append(e.channels, c)
	return c.recorder(component)
}

// start begins to send. Events recorded before are sent then.
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

func (c *channel) recorder(component string) record.EventRecorder {
	return c.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// mark returns a channel that is closed when every event recorded before has been sent. Events are sent in order, so a marker is sent behind
// them that gets no further than the sink.
func (c *channel) mark() <-chan struct{} {
	marker := types.UID(uuid.NewString())
	reached := c.sink.expect(marker)
	c.recorder(Name).Event(&corev1.ObjectReference{Kind: markerKind, UID: marker}, corev1.EventTypeNormal, "Flush", "")
	return reached
}

const markerKind = "minikcm.marker"

// markedSink passes events on and markers not.
type markedSink struct {
	record.EventSink

	lock   sync.Mutex
	marker types.UID
	found  chan struct{}
}

// expect returns a channel that is closed when the marker arrives. Only one marker is expected at a time.
func (s *markedSink) expect(marker types.UID) <-chan struct{} {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.marker, s.found = marker, make(chan struct{})
	return s.found
}

// Create implements record.EventSink.
func (s *markedSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind != markerKind {
		return s.EventSink.Create(event)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if event.InvolvedObject.UID == s.marker {
		close(s.found)
		s.marker = ""
	}
	return event, nil
}
