package leadership

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"minikcm/internal/fakeapi"
	"minikcm/internal/timing"
)

func TestLimitsAfter(t *testing.T) {
	defaults := Config{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
	rare := Config{LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 8 * time.Second}
	long := Config{LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: 2 * time.Second}
	for _, tt := range []struct {
		name                     string
		cfg                      Config
		lease                    time.Duration
		until, most, slow, after float64 // seconds
	}{
		{"defaults", defaults, defaults.LeaseDuration, 13.5, 11.5, 5.75, 1.5},
		{"defaults, extended", defaults, defaults.extendedLease(), 40.5, 34, 5.75, 4.5},
		{"long lease", long, long.LeaseDuration, 54, 34, 17, 6},
		{"long lease is not extended", long, long.extendedLease(), 54, 34, 17, 6},
		{"rare renewals", rare, rare.LeaseDuration, 27, 19, 9.5, 3},
		{"rare renewals, extended", rare, rare.extendedLease(), 58.5, 34, 9.5, 6.5},
	} {
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		want := writeLimits{until: epoch.Add(seconds(tt.until)), maxDuration: seconds(tt.most), slowAfter: seconds(tt.slow), margin: seconds(tt.after)}
		fakeapi.Want(t, tt.name, tt.cfg.limitsAfter(epoch, tt.lease), want)
	}
}

// slowServer is an API server with slow admission. A write is applied only within its timeout.
type slowServer struct {
	lock   sync.Mutex
	takes  time.Duration
	given  []time.Duration // timeout of each write
	landed []time.Time     // times of applied writes
	deaf   bool            // does not notice disconnected clients and sends no responses
}

func (s *slowServer) set(change func(*slowServer)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	change(s)
}

func (s *slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	given, err := time.ParseDuration(req.URL.Query().Get("timeout"))
	if err != nil {
		return nil, err
	}
	s.lock.Lock()
	s.given = append(s.given, given)
	takes, deaf := s.takes, s.deaf
	s.lock.Unlock()
	finish := func() (status int) {
		if takes > given {
			return http.StatusGatewayTimeout
		}
		s.set(func(s *slowServer) { s.landed = append(s.landed, time.Now()) })
		return http.StatusCreated
	}
	if deaf {
		time.AfterFunc(min(takes, given), func() { finish() })
		<-req.Context().Done()
	} else if timing.Sleep(req.Context(), realClock, min(takes, given)) {
		return &http.Response{StatusCode: finish(), Body: http.NoBody}, nil
	}
	return nil, req.Context().Err()
}

// post sends a write and returns its error.
func (s *slowServer) post(ctx context.Context, f *Fence) error {
	resp, err := f.Wrap(s).RoundTrip(httptest.NewRequest("POST", "/pods", nil).WithContext(ctx))
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		return errors.New(resp.Status)
	}
	return nil
}

// createUntilDone repeats a write until it succeeds and returns the duration.
func (s *slowServer) createUntilDone(t *testing.T, f *Fence) time.Duration {
	t.Helper()
	begun := time.Now()
	for time.Since(begun) < 5*time.Minute {
		if s.post(t.Context(), f) == nil {
			return time.Since(begun)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("a write was not done in 5 minutes")
	return 0
}

// loseWrite sends a write that gets no response, and cancels the request at once.
func (s *slowServer) loseWrite(t *testing.T, f *Fence, takes time.Duration) {
	t.Helper()
	s.set(func(s *slowServer) { s.takes, s.deaf = takes, true })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	fakeapi.WantError(t, "error of the write", s.post(ctx, f), context.DeadlineExceeded)
}

func (s *leaseServer) duration() time.Duration {
	return time.Duration(*s.read().Spec.LeaseDurationSeconds) * time.Second
}

// The API server allows each write 34 s.
func TestSlowWritesSucceed(t *testing.T) {
	for _, tt := range []struct {
		takes, within time.Duration
		longer        bool // the lease is renewed for longer
	}{
		{5 * time.Second, 5 * time.Second, false},
		{10 * time.Second, 10 * time.Second, true},
		{30 * time.Second, 42 * time.Second, true},
		{33500 * time.Millisecond, 46 * time.Second, true},
	} {
		bubble(t, tt.takes.String(), func(t *testing.T, s *leaseServer) {
			server, a := &slowServer{takes: tt.takes}, start(t, s, "a")
			sleep(time.Minute + 1900*time.Millisecond) // just before a renewal
			if took := server.createUntilDone(t, a.fence); took > tt.within {
				t.Errorf("a write of %v was done after %v, want at most %v", tt.takes, took, tt.within)
			}
			fakeapi.Want(t, "the lease was renewed for", s.duration() > 15*time.Second, tt.longer)
			fakeapi.Want(t, "leadership_lease_duration_seconds", testutil.ToFloat64(a.deps.Metrics.lease), s.duration().Seconds())
			fakeapi.Want(t, "writes that were done", len(server.landed), 1)
			server.set(func(s *slowServer) { s.takes = 0 })
			sleep(extendedFor + 3*time.Second)
			fakeapi.Want(t, "the lease is renewed for", s.duration(), 15*time.Second)
			server.given = nil
			_ = server.createUntilDone(t, a.fence)
			if got := server.given[0]; got > 11500*time.Millisecond {
				t.Errorf("a write is given %v under the short lease", got)
			}
		})
	}
}

// A write with a timeout of 34 s and without a response may be applied at the end of its timeout.
func TestExtendedLeaseCoversLastSlowWrite(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		server, a := &slowServer{takes: 20 * time.Second}, start(t, s, "a")
		sleep(time.Minute)
		server.createUntilDone(t, a.fence)
		sleep(extendedFor - 3*time.Second)
		sent := time.Now()
		server.loseWrite(t, a.fence, 33*time.Second)
		for s.duration() > 15*time.Second {
			sleep(100 * time.Millisecond)
		}
		if others := time.Since(sent) + 15*time.Second; others < 34*time.Second {
			t.Errorf("another could lead %v after a write was sent that may take 34s", others)
		}
		if got := time.Since(sent); got > 28*time.Second {
			t.Errorf("the lease was long for %v after the last slow write", got)
		}
		sleep(time.Minute)
	})
}

// Before the confirmation, other processes may not have seen the extended lease.
func TestExtendedLeaseIsUsedAfterConfirmation(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		server, a := &slowServer{takes: 30 * time.Second}, start(t, s, "a")
		sleep(time.Minute)
		a.conn.set(func(c *conn) { c.slow = 4 * time.Second })
		given := func() time.Duration {
			server.set(func(s *slowServer) { s.given = nil })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_ = server.post(ctx, a.fence)
			server.lock.Lock()
			defer server.lock.Unlock()
			return server.given[0]
		}
		go func() { _ = server.post(t.Context(), a.fence) }()
		for s.duration() == 15*time.Second {
			sleep(10 * time.Millisecond)
		}
		if got := given(); got > 11500*time.Millisecond {
			t.Errorf("a write is given %v before the longer lease was confirmed", got)
		}
		sleep(4 * time.Second)
		if got := given(); got <= 30*time.Second {
			t.Errorf("a write is given %v after the longer lease was confirmed", got)
		}
		sleep(2 * time.Minute)
	})
}

// The timeout of every write ends before another process can lead.
func TestNoWriteLandsInAnotherTerm(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Second, 15 * time.Second, 30 * time.Second} {
		for _, tt := range []struct {
			name string
			end  func(a *process)
		}{
			{"killed", func(a *process) {
				a.conn.set(func(c *conn) { c.err = errors.New("no more") })
			}},
			{"shutdown", func(a *process) { a.cancel() }},
			{"stepping down", func(a *process) { a.StepDown("stale", nil) }},
			{"shutdown without an API server", func(a *process) {
				a.conn.set(func(c *conn) { c.err = errors.New("refused") })
				a.cancel()
			}},
		} {
			fakeapi.Bubble(t, takes.String()+" "+tt.name, func(t *testing.T) {
				for wait := time.Second; wait < time.Minute; wait += 3700 * time.Millisecond {
					s, server := newLeaseServer(t), &slowServer{takes: takes}
					a, b := start(t, s, "a"), start(t, s, "b")
					ctx, stop := context.WithCancel(t.Context())
					var work sync.WaitGroup
					work.Go(func() {
						for ctx.Err() == nil {
							_ = server.post(ctx, a.fence)
							time.Sleep(100 * time.Millisecond)
						}
					})
					sleep(wait)
					server.set(func(s *slowServer) { s.deaf = true })
					sleep(500 * time.Millisecond)
					tt.end(a)
					sleep(2 * time.Minute)
					stop()
					work.Wait()
					if len(b.spans()) == 0 {
						t.Fatalf("ended after %v: no process took over", wait)
					}
					led := b.spans()[0].begun
					for _, at := range server.landed {
						if at.After(led) {
							t.Errorf("ended after %v: a write was done %v after another led", wait, at.Sub(led))
						}
					}
					b.cancel()
					<-b.done
					a.cancel()
					<-a.done
				}
			})
		}
	}
}
