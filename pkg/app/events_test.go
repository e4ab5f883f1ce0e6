package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/internal/timing"
)

// An API server that takes long for each event, or a controller that has very many, leaves the events of
// others alone.
func TestEventStormDelaysNoOtherController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan struct{}, 10)
		e := testEvents(t, func(req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			if strings.Contains(string(body), "many") {
				timing.Sleep(req.Context(), clock.RealClock{}, 10*time.Second)
			} else {
				sent <- struct{}{}
			}
		})
		many, few := e.newRecorder("many"), e.newRecorder("few")
		e.startSending(fakeapi.Quiet(t.Context()))
		defer e.stopSending()
		object := &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}
		for i := range 1500 { // more than a queue holds
			many.Event(&corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: fmt.Sprint("p", i)}, corev1.EventTypeNormal, "Many", "")
		}
		few.Event(object, corev1.EventTypeNormal, "Few", "")
		start := time.Now()
		<-sent
		if took := time.Since(start); took > 0 {
			t.Errorf("sent after %v, want at once", took)
		}
	})
}

// Events above the limit of client-go are dropped before client-go prepares a patch for each. Every dropped
// event is counted.
func TestDroppedEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		e := testEvents(t, func(req *http.Request) {
			sent.Add(1)
			timing.Sleep(req.Context(), clock.RealClock{}, 10*time.Millisecond)
		})
		recorder := e.newRecorder("one")
		e.startSending(fakeapi.Quiet(t.Context()))
		defer e.stopSending()
		record := func(eventType string, objects, times int) (accepted int64, limit, queue float64) {
			sent.Store(0)
			for i := range objects {
				for range times {
					recorder.Event(&corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprint("p", i)}, eventType, "Reason", "")
				}
			}
			e.flush(t.Context())
			limit = testutil.ToFloat64(e.dropped.WithLabelValues("one", droppedByLimit))
			queue = testutil.ToFloat64(e.dropped.WithLabelValues("one", droppedByQueue))
			e.dropped.Reset()
			return sent.Load(), limit, queue
		}
		for _, tt := range []struct {
			after          time.Duration
			eventType      string
			objects, times int
			sent           int64
			limit, queue   float64
		}{
			{0, corev1.EventTypeNormal, 1, 40, 25, 15, 0},
			{5 * time.Minute, corev1.EventTypeNormal, 1, 2, 1, 1, 0}, // one more in five minutes
			{24 * time.Hour, corev1.EventTypeNormal, 1500, 1, 900, 0, 600},
			{24 * time.Hour, corev1.EventTypeNormal, 900, 1, 900, 0, 0}, // the queue is empty again
			{0, corev1.EventTypeWarning, 250, 1, 100, 150, 0},
			{time.Minute, corev1.EventTypeWarning, 250, 1, 100, 150, 0},
		} {
			time.Sleep(tt.after)
			if sent, limit, queue := record(tt.eventType, tt.objects, tt.times); sent != tt.sent || limit != tt.limit || queue != tt.queue {
				t.Errorf("%d events about each of %d objects: %d sent, %v over the limit, %v over the queue, want %d, %v, %v",
					tt.times, tt.objects, sent, limit, queue, tt.sent, tt.limit, tt.queue)
			}
		}
	})
}

// testEvents sends events to a server that rejects all events after receive has returned.
func testEvents(t *testing.T, receive func(*http.Request)) *events {
	t.Helper()
	e, err := newEvents(&rest.Config{Host: "https://server", QPS: -1, Transport: fakeapi.RoundTripper(func(req *http.Request) (*http.Response, error) {
		receive(req)
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: req}, nil
	})}, prometheus.NewRegistry())
	fakeapi.NoError(t, err)
	return e
}

// Events of the last term are sent before the process ends, and delay the end by a second at most. No event is
// sent later.
func TestEndWaitsForEvents(t *testing.T) {
	for _, tt := range []struct{ takes, want time.Duration }{{100 * time.Millisecond, 200 * time.Millisecond}, {time.Hour, flushTimeout}} {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int32
			e := testEvents(t, func(req *http.Request) {
				sent.Add(1)
				timing.Sleep(req.Context(), clock.RealClock{}, tt.takes)
			})
			recorders := []record.EventRecorder{e.newRecorder("one"), e.newRecorder("two")}
			ctx, cancel := context.WithCancel(fakeapi.Quiet(t.Context()))
			begun := time.Now()
			_ = (&Manager{events: e}).sendEvents(ctx, func() {
				for i := range 3 {
					recorders[i%2].Event(&corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprint("p", i)}, corev1.EventTypeNormal, "Reason", "")
				}
				cancel()
			})
			if took := time.Since(begun); took < tt.want || took > tt.want+2*flushPeriod {
				t.Errorf("ended after %v, want %v", took, tt.want)
			}
			before := sent.Load()
			time.Sleep(24 * time.Hour)
			fakeapi.Want(t, "events sent after a day", sent.Load(), before)
		})
	}
}

// Events, at level 3, and failures are logged to the logger of the manager. The logger of klog belongs to the
// process.
func TestEventsAreLoggedByTheirManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string, 10)
		e := testEvents(t, func(*http.Request) {})
		recorder := e.newRecorder("one")
		e.startSending(klog.NewContext(t.Context(), funcr.New(func(_, line string) { lines <- line }, funcr.Options{Verbosity: 3})))
		defer e.stopSending()
		recorder.Event(&corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}, corev1.EventTypeNormal, "Refused", "")
		both := <-lines + <-lines
		fakeapi.WantPart(t, "log", both, `"level"=3 "msg"="Event occurred"`)
		fakeapi.WantPart(t, "log", both, "Server rejected event")
	})
}
