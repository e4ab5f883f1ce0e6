package leadership

import (
	"context"
	"errors"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
)

func TestHandOverOnShutdown(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		drain := func(p *process, c *Config) {
			c.ShutdownTimeout = time.Minute
			p.work = func(context.Context) error {
				time.Sleep(40 * time.Second) // longer than a lease, which is renewed while draining
				return nil
			}
		}
		a, b := start(t, s, "a", drain), start(t, s, "b")
		sleep(time.Minute)
		a.cancel()
		sleep(39 * time.Second)
		wantWritable(t, a, true)
		fakeapi.Want(t, "holder during the drain", s.holder(), "a")
		wantLeading(t, b, false)
		sleep(time.Second)
		<-a.done
		fakeapi.Want(t, "result of Run after a clean drain", a.err, nil)
		wantLeading(t, b, true)
		left, took := a.spans()[0].end, b.spans()[0].begun
		if took.Sub(left) > 10*time.Millisecond {
			t.Errorf("b leads %v after a's last controller, want at once", took.Sub(left))
		}
		wantTakeover(t, b, CauseReleased)
		for _, want := range []string{"Normal LeaderElection a became leader", "Normal LeaderElection a stopped leading"} {
			fakeapi.Want(t, "event", <-a.events.Events, want)
		}
	})
}

func TestLeaseIsReleasedAfterTheLastRequest(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		server, a := &slowServer{takes: 5 * time.Second}, start(t, s, "a")
		go func() { _ = server.post(t.Context(), a.fence) }()
		sleep(time.Second)
		a.cancel() // the controllers return at once
		sleep(3 * time.Second)
		fakeapi.Want(t, "holder with a request in flight", s.holder(), "a")
		sleep(time.Second)
		fakeapi.Want(t, "holder after the last response", s.holder(), "")
	})
}

func TestSlowDrain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		drain  time.Duration // of the controllers
		stolen time.Duration // when another process takes the lease; 0 for never
		err    error
		takes  time.Duration
		holder string
		lasts  time.Duration // remaining duration of the lease
	}{
		{"controllers return soon after the cancellation of requests", 11 * time.Second, 0, ErrShutdownTimeout, 11 * time.Second, "a", time.Second},
		{"controllers never return", time.Hour, 0, ErrShutdownTimeout, 10*time.Second + joinTimeout, "a", 15 * time.Second},
		{"lease is stolen", 5 * time.Second, time.Second, nil, 5 * time.Second, "thief", 15 * time.Second},
		{"lease is stolen just before the shutdown timeout", 11 * time.Second, 9900 * time.Millisecond, nil, 11 * time.Second, "thief", 15 * time.Second},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a := start(t, s, "a", func(p *process, _ *Config) {
				p.work = func(context.Context) error { time.Sleep(tt.drain); return nil }
			})
			begun := time.Now()
			a.cancel()
			if tt.stolen > 0 {
				sleep(tt.stolen)
				s.hold("thief")
				sleep(0)
				wantWritable(t, a, false)
			}
			<-a.done
			fakeapi.WantError(t, "result of Run", a.err, tt.err)
			fakeapi.Want(t, "duration of Run", time.Since(begun), tt.takes)
			fakeapi.Want(t, "holder", s.holder(), tt.holder)
			fakeapi.Want(t, "remaining duration of the lease", s.duration(), tt.lasts)
			wantWritable(t, a, false)
			sleep(tt.drain)
		})
	}
}

func wantWritable(t *testing.T, p *process, want bool) {
	t.Helper()
	fakeapi.Want(t, p.cfg.Identity+": fence lets writes through", p.writable(), want)
}

// The process ends as a standby, or before the first attempt to acquire the lease has a response.
func TestShutdownWithoutATerm(t *testing.T) {
	for _, tt := range []struct {
		name   string
		holder string // other process
		verb   string // of the slow response
		slow   time.Duration
	}{
		{"standby", "x", "", 0},
		{"read", "", "get", time.Hour},
		{"write, response soon after the signal", "", "create", 500 * time.Millisecond},
		{"write, response later", "", "create", 3 * time.Second},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			if tt.holder != "" {
				s.hold(tt.holder)
			}
			a := start(t, s, "a", func(p *process, _ *Config) {
				p.conn.before = func(verb string) {
					p.conn.set(func(c *conn) {
						if c.slow = 0; verb == tt.verb && len(c.calls) <= 2 {
							c.slow = tt.slow
						}
					})
				}
			})
			begun := time.Now()
			a.cancel()
			<-a.done
			if took := time.Since(begun); took > 2*time.Second || a.err != nil {
				t.Errorf("Run = %v after %v, want nil within 2s", a.err, took)
			}
			if holder := s.holder(); holder == "a" || tt.holder != "" && holder != tt.holder || len(a.spans()) != 0 {
				t.Errorf("holder %q after %d terms, want %q after none", holder, len(a.spans()), tt.holder)
			}
		})
	}
}

func TestLeadErrorEndsRun(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name      string
		err, want error
	}{{"an error", broken, broken}, {"an early return", nil, ErrLeadReturned}} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a := start(t, s, "a", func(p *process, _ *Config) { p.early = func() error { return tt.err } })
			<-a.done
			fakeapi.WantError(t, "result of Run", a.err, tt.want)
			fakeapi.Want(t, "holder", s.holder(), "")
		})
	}
}

func TestHealthCheck(t *testing.T) {
	never := make(chan struct{})
	stuck := func(p *process, _ *Config) {
		p.work = func(context.Context) error { <-never; return nil }
	}
	for _, tt := range []struct {
		name    string
		change  func(*process, *Config)
		event   func(*leaseServer, *process)
		after   time.Duration
		healthy bool
	}{
		{"leader", func(*process, *Config) {}, func(*leaseServer, *process) {}, time.Hour, true},
		{"outage, controllers have returned", func(*process, *Config) {}, func(_ *leaseServer, p *process) { p.conn.set(func(c *conn) { c.err = errors.New("down") }) }, time.Hour, true},
		{"lost lease, controllers return soon", stuck, func(s *leaseServer, _ *process) { s.hold("thief") }, 30 * time.Second, true},
		{"lost lease, controllers do not return", stuck, func(s *leaseServer, _ *process) { s.hold("thief") }, 36 * time.Second, false},
		{"drain without a limit", func(p *process, c *Config) { stuck(p, c); c.ShutdownTimeout = 0 }, func(_ *leaseServer, p *process) { p.cancel() }, time.Hour, true},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			never = make(chan struct{})
			a := start(t, s, "a", tt.change)
			defer close(never)
			sleep(time.Minute)
			tt.event(s, a)
			sleep(tt.after)
			fakeapi.Want(t, "healthy", a.Healthy() == nil, tt.healthy)
		})
	}
}
