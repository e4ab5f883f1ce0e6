package app

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// An API server that takes long for each event, or a controller that has very many, leaves the events of others alone.
func TestEventsOfOneControllerHoldUpNoneOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan struct{}, 10)
		e, err := newEvents(&rest.Config{Host: "https://server", QPS: -1, Transport: answering(func(req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			if strings.Contains(string(body), "many") {
				time.Sleep(10 * time.Second)
			} else {
				sent <- struct{}{}
			}
			return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: req}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		many, few := e.recorder("many"), e.recorder("few")
		e.start()
		defer func() { e.stop(); time.Sleep(24 * time.Hour) }() // senders end when they have sent what they have
		object := &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}
		for range 1500 { // more than a queue holds
			many.Event(object, corev1.EventTypeNormal, "Many", "")
		}
		few.Event(object, corev1.EventTypeNormal, "Few", "")
		start := time.Now()
		<-sent
		if took := time.Since(start); took > 0 {
			t.Errorf("sent after %v, want at once", took)
		}
	})
}

func TestFlushWaitsForTheEventsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := newEvents(&rest.Config{Host: "https://server", QPS: -1, Transport: answering(func(req *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: req}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		one, two := e.recorder("one"), e.recorder("two")
		e.start()
		defer func() { e.stop(); time.Sleep(24 * time.Hour) }() // senders end when they have sent what they have
		object := &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}
		one.Event(object, corev1.EventTypeNormal, "A", "")
		for range 3 {
			two.Event(object, corev1.EventTypeNormal, "B", "")
		}
		start := time.Now()
		e.flush(t.Context())
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("flushed after %v, want 3 s: the events of two, one after the other", took)
		}
		one.Event(object, corev1.EventTypeNormal, "C", "")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start = time.Now()
		e.flush(ctx)
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("gave up after %v, want 100ms", took)
		}
	})
}
