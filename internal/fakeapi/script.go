package fakeapi

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

// Script is client-go's fake clientset with prepared responses and a recorder of events, for tests of single syncs.
type Script struct {
	*fake.Clientset
	Recorder *record.FakeRecorder
}

// Respond returns the response to a request, for the first call of this kind with call 1. A nil object without an error
// is the response of the fake clientset.
type Respond func(call int, action clienttesting.Action) (runtime.Object, error)

// NewScript returns a clientset that knows copies of objects.
func NewScript[T runtime.Object](t testing.TB, objects ...T) *Script {
	t.Helper()
	s := &Script{fake.NewClientset(), record.NewFakeRecorder(1000)}
	for _, object := range objects {
		NoError(t, s.Tracker().Add(object.DeepCopyObject()))
	}
	return s
}

// On prepares the responses to requests such as "create pods" or "update replicasets/status".
func (s *Script) On(request string, respond Respond) {
	calls := 0
	s.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if describeAction(a) != request {
			return false, nil, nil
		}
		calls++
		obj, err := respond(calls, a)
		return obj != nil || err != nil, obj, err
	})
}

// Fails makes requests fail.
func Fails(err error) Respond {
	return func(int, clienttesting.Action) (runtime.Object, error) { return nil, err }
}

// Returns makes requests succeed with an object.
func Returns(obj runtime.Object) Respond {
	return func(int, clienttesting.Action) (runtime.Object, error) { return obj, nil }
}

func describeAction(a clienttesting.Action) string {
	request := a.GetVerb() + " " + a.GetResource().Resource
	if sub := a.GetSubresource(); sub != "" {
		request += "/" + sub
	}
	return request
}

// RequestTexts returns the texts of requests.
func RequestTexts(actions []clienttesting.Action) (requests []string) {
	for _, a := range actions {
		requests = append(requests, describeAction(a))
	}
	return requests
}

// Sent returns the requests since the last ClearActions.
func (s *Script) Sent() []string { return RequestTexts(s.Actions()) }

// Count returns the number of requests such as "create pods".
func (s *Script) Count(request string) int {
	return len(slices.DeleteFunc(s.Sent(), func(r string) bool { return r != request }))
}

// Wants compares the requests since the last ClearActions.
func (s *Script) Wants(t testing.TB, requests ...string) {
	t.Helper()
	if got := s.Sent(); !slices.Equal(got, requests) {
		t.Errorf("requests are %v, want %v", got, requests)
	}
}

// NewEvents returns the events since the last call.
func (s *Script) NewEvents() []string { return NewEvents(s.Recorder) }

// NewEvents returns the events of a recorder since the last call.
func NewEvents(recorder *record.FakeRecorder) (events []string) {
	for len(recorder.Events) > 0 {
		events = append(events, <-recorder.Events)
	}
	return events
}

// WantsEvents compares the events since the last call with parts of their texts.
func (s *Script) WantsEvents(t testing.TB, parts ...string) {
	t.Helper()
	if got := s.NewEvents(); !slices.EqualFunc(got, parts, strings.Contains) {
		t.Errorf("events are %q, want %q", got, parts)
	}
}
