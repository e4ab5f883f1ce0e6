package leadership

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"minikcm/internal/fakeapi"
)

// A standby takes a released lease within milliseconds.
func TestReleaseWaitsForUnknownOutcomes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration // of the shutdown
		end     func(*process)
		exits   bool
		within  time.Duration // from the end of the term to the next leader
		after   time.Duration // Run returns, at most
		cause   Cause
	}{
		{"a shutdown that can wait so long", 20 * time.Second, func(p *process) { p.cancel() }, true, 13 * time.Second, 13 * time.Second, CauseReleased},
		{"a shutdown that cannot: waiting would be useless", 10 * time.Second, func(p *process) { p.cancel() }, true, 14 * time.Second, 0, CauseExpired},
		{"a step-down that can wait so long", 20 * time.Second, func(p *process) { p.StepDown("stale", nil) }, false, 13 * time.Second, 0, CauseReleased},
		{"a step-down that cannot", 10 * time.Second, func(p *process) { p.StepDown("stale", nil) }, false, 14 * time.Second, 0, CauseExpired},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a := start(t, s, "a", func(_ *process, c *Config) { c.ShutdownTimeout = tt.timeout })
			b := start(t, s, "b")
			sleep(time.Minute)
			server := &slowServer{}
			server.loseWrite(t, a.fence, 11*time.Second)
			ended := time.Now()
			tt.end(a)
			if tt.exits {
				<-a.done
				if took := time.Since(ended); took > tt.after {
					t.Errorf("Run returned after %v, want at most %v", took, tt.after)
				}
				fakeapi.Want(t, "result of Run, controllers have stopped", a.err, nil)
			}
			sleep(30 * time.Second)
			wantLeading(t, b, true)
			wantTakeover(t, b, tt.cause)
			led := b.spans()[0].begun
			if len(server.landed) != 1 || !server.landed[0].Before(led) {
				t.Errorf("the write was done at %v, another led at %v", server.landed, led)
			}
			if took := led.Sub(ended); took > tt.within {
				t.Errorf("another led after %v, want at most %v", took, tt.within)
			}
		})
	}
}

// The margin towards other processes also applies to the next own term.
func TestNextTermWaitsForOwnWrites(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(*leaseServer, *process)
	}{
		{"after a step-down", func(_ *leaseServer, p *process) { p.StepDown("stale", func() bool { return true }) }},
		{"after a loss", func(s *leaseServer, _ *process) { s.hold("thief"); sleep(0); s.hold("") }},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a := start(t, s, "a", func(_ *process, c *Config) { c.ShutdownTimeout = time.Second })
			sleep(time.Minute)
			server := &slowServer{}
			server.loseWrite(t, a.fence, 11*time.Second)
			tt.lose(s, a)
			sleep(20 * time.Second)
			wantLeading(t, a, true)
			spans := a.spans()
			if len(spans) != 2 {
				t.Fatalf("%d terms, want 2", len(spans))
			}
			if led := spans[1].begun; len(server.landed) != 1 || !server.landed[0].Before(led) {
				t.Errorf("the write of term 1 was done at %v, term 2 began at %v", server.landed, led)
			}
		})
	}
}

// A jump of the wall clock must move neither the expiry of a lease nor a deadline. synctest has no monotonic clock.
func TestDeadlinesKeepMonotonicReading(t *testing.T) {
	const duration = 15 * time.Second
	l := &leaseClient{client: newLeaseServer(t), name: "test", identity: "a", clock: realClock, expectVersion: func(string) {},
		durations: func(context.Context) (time.Duration, time.Duration) { return duration, duration }}
	renewal := l.acquireOrRenew(t.Context(), false)
	free, _ := l.latestObservation().freeAt("b", duration)
	limits := Config{LeaseDuration: duration, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}.limitsAfter(renewal.sent, renewal.confirmed)
	limits.slowAfter = 0
	fence := NewFence(realClock, NewMetrics(prometheus.NewRegistry()))
	fence.openTerm(1, limits)
	_, fl, err := fence.startRequest(httptest.NewRequest("POST", "/pods", nil))
	if renewal.err != nil || err != nil {
		t.Fatal(renewal.err, err)
	}
	inFlight := fence.unknownUntil()
	fl.complete(false)
	for name, got := range map[string]time.Time{"observation": l.latestObservation().since, "expiry": free, "renewal": renewal.sent, "deadline of the term": limits.until,
		"deadline of a write": fl.deadline, "write in flight": inFlight, "write without a response": fence.unknownUntil(), "slow writes": fence.slowUntil} {
		fakeapi.WantPart(t, name+", which must have a monotonic reading,", got.String(), " m=")
	}
}
