package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
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

// A process may lose a thousand leases in its life, and what the end of a term leaves behind would be there for ever.
func TestFlushesLeaveNothingBehind(t *testing.T) {
	e, err := newEvents(&rest.Config{Host: "https://server", Transport: answering(func(req *http.Request) (*http.Response, error) {
		t.Errorf("%s %s, want no request without an event", req.Method, req.URL)
		return nil, errors.New("unexpected")
	})})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two", "three", "four"} {
		e.recorder(name)
	}
	e.start()
	defer e.stop()
	flush := func(times int) (heap uint64) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range times {
			e.flush(ctx)
		}
		if ctx.Err() != nil {
			t.Fatalf("%d flushes: %v", times, ctx.Err())
		}
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := flush(markers)
	after := flush(1200)
	if grown := int64(after) - int64(before); grown > 300_000 { // 5 MB if each left something
		t.Errorf("1,200 flushes left %d bytes", grown)
	}
}
