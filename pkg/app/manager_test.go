package app

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// client-go's informers sleep without looking at their context when a streaming list is refused with 429, mostly for many seconds.
func TestStoppingWaitsASecondForInformersThatSleep(t *testing.T) {
	overloaded := answering(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody, Request: req}, nil
	})
	for range 10 { // how long they sleep is random
		synctest.Test(t, func(t *testing.T) {
			b, err := newBuilder(Config{REST: &rest.Config{Host: "https://server", Transport: overloaded}}, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.caches.Pods(); err != nil {
				t.Fatal(err)
			}
			m := &Manager{clock: b.clock, caches: b.caches, fillNow: make(chan struct{})}
			close(m.fillNow)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- m.keepCaches(ctx, func() {}) }()
			time.Sleep(time.Minute)
			begun := time.Now()
			stop()
			<-done
			if took := time.Since(begun); took > time.Second {
				t.Errorf("stopping took %v, want 1s at most", took)
			}
			time.Sleep(2 * time.Minute) // they wake up, and end
		})
	}
}

// answering is a transport.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
