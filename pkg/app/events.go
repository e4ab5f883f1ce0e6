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

// events sends the controllers' events. They pass no fence: an event says what was done and does nothing.
type events struct {
	broadcaster record.EventBroadcaster
	sink        *markedSink
}

func newEvents(cfg *rest.Config) (*events, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("build the events' client: %w", err)
	}
	sink := &markedSink{EventSink: &corev1client.EventSinkImpl{Interface: client.Events(corev1.NamespaceAll)}}
	return &events{broadcaster: record.NewBroadcaster(), sink: sink}, nil
}

// start begins to send. Events recorded before are sent then.
func (e *events) start() {
	e.broadcaster.StartStructuredLogging(4)
	e.broadcaster.StartRecordingToSink(e.sink)
}

// stop gives up what was not sent yet.
func (e *events) stop() { e.broadcaster.Shutdown() }

// recorder returns a recorder whose events name component as their source.
func (e *events) recorder(component string) record.EventRecorder {
	return e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// flush waits until every event recorded before has been sent, or ctx has ended. Events are sent in order, so it sends a marker behind
// them that gets no further than the sink.
func (e *events) flush(ctx context.Context) {
	marker := types.UID(uuid.NewString())
	reached := e.sink.expect(marker)
	e.recorder(Name).Event(&corev1.ObjectReference{Kind: markerKind, UID: marker}, corev1.EventTypeNormal, "Flush", "")
	select {
	case <-reached:
	case <-ctx.Done():
	}
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
