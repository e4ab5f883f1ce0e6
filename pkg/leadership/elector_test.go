package leadership

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
)

var realClock = clock.RealClock{}

func wantLeading(t *testing.T, p *process, want bool) {
	t.Helper()
	fakeapi.Want(t, p.cfg.Identity+": leading", p.leads(), want)
	wantWritable(t, p, want)
}

// wantTakeover fails unless p has begun one term by this cause.
func wantTakeover(t *testing.T, p *process, by Cause) {
	t.Helper()
	seconds := fakeapi.Histogram(t, p.deps.Metrics.takeovers.WithLabelValues(string(by)))
	fakeapi.Want(t, fmt.Sprintf("takeovers of %s, %s", p.cfg.Identity, by), seconds.GetSampleCount(), 1)
}

func TestFirstProcessLeadsAtOnce(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a")
		wantLeading(t, a, true)
		wantTakeover(t, a, CauseInitial)
		b := start(t, s, "b")
		sleep(time.Hour)
		wantLeading(t, a, true)
		wantLeading(t, b, false)
		if len(a.spans()) != 1 || a.renewalAge() > 2*time.Second || s.holder() != "a" {
			t.Errorf("after an hour: %d terms, holder %q, renewed %v ago", len(a.spans()), s.holder(), a.renewalAge())
		}
		if got := b.conn.requests(); got > 3600/3 || slices.Contains(b.conn.calls, "update") {
			t.Errorf("a standby sent %d requests in an hour, want GETs, one in 3 s at most", got)
		}
	})
}

func TestExpiredLeaseIsTakenAtThatInstant(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frozen bool
		after  time.Duration // since the holder's last renewal
	}{
		{"with a watch", false, 15 * time.Second},
		{"a frozen watch is made up for by polling", true, 20 * time.Second},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			s.hold("x")
			b := start(t, s, "b")
			b.conn.set(func(c *conn) { c.frozen = tt.frozen })
			for range 100 {
				sleep(1900 * time.Millisecond)
				s.hold("x")
			}
			last := time.Now()
			synctest.Wait()
			if len(b.spans()) != 0 {
				t.Fatal("took the lease from a holder that renews")
			}
			sleep(tt.after)
			wantLeading(t, b, true)
			took := b.spans()[0].begun.Sub(last)
			if took < 15*time.Second || !tt.frozen && took != 15*time.Second {
				t.Errorf("took it %v after the last renewal, want 15s", took)
			}
			wantTakeover(t, b, CauseExpired)
		})
	}
}

// The watch shows the release before the response to an earlier GET.
func TestReleaseDuringARead(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		s.hold("x")
		b := start(t, s, "b")
		sleep(time.Second)
		var released time.Time
		b.conn.set(func(c *conn) {
			c.slow = 3 * time.Second
			c.before = func(string) {
				if released.IsZero() {
					released = time.Now().Add(time.Second)
					time.AfterFunc(time.Second, func() {
						b.conn.set(func(c *conn) { c.slow = 0 })
						s.hold("")
					})
				}
			}
		})
		sleep(20 * time.Second)
		wantLeading(t, b, true)
		fakeapi.Want(t, "time from release to term", b.spans()[0].begun.Sub(released), 2*time.Second)
	})
}

// The holder renews between the GET and the PUT of the candidate.
func TestRenewalBeatsExpiry(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		s.hold("x")
		b := start(t, s, "b")
		b.conn.set(func(c *conn) {
			c.frozen = true // only the precondition of the PUT protects the holder
			c.before = func(verb string) {
				if verb == "update" {
					s.hold("x")
				}
			}
		})
		sleep(16 * time.Second)
		wantLeading(t, b, false)
		if !slices.Contains(b.conn.calls, "update") {
			t.Error("b did not try: the test shows nothing")
		}
	})
}

func TestDeletedLeaseIsNotFree(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a, b := start(t, s, "a"), start(t, s, "b")
		sleep(time.Minute)
		s.remove()
		sleep(5 * time.Second)
		wantLeading(t, a, true)
		wantLeading(t, b, false)
		fakeapi.Want(t, "holder", s.holder(), "a")
		fakeapi.Want(t, "terms of a", len(a.spans()), 1)
		a.conn.set(func(c *conn) { c.err = errors.New("cut off") })
		s.remove()
		sleep(16 * time.Second)
		wantLeading(t, b, true)
	})
}

func TestOtherLeasesAndLateEventsAreIgnored(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		s.hold("x")
		late := s.read()
		s.hold("")
		a := start(t, s, "a")
		a.Observe(late)
		for _, key := range [][2]string{{"kube-system", "another"}, {"another", late.Name}} { // namespace and name
			other := s.read()
			other.Namespace, other.Name, other.ResourceVersion, other.Spec.HolderIdentity = key[0], key[1], "999", new("x")
			a.Observe(other)
			sleep(0)
		}
		fakeapi.Want(t, "terms of a", len(a.spans()), 1)
	})
}

func TestStepDown(t *testing.T) {
	for _, tt := range []struct {
		name     string
		caughtUp time.Duration // after the step-down
		back     time.Duration
	}{
		{"back when caught up", 7 * time.Second, 8 * time.Second},
		{"back after the cool-down", time.Hour, 30 * time.Second},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a := start(t, s, "a")
			sleep(time.Minute)
			begun := time.Now()
			a.StepDown("pods are stale", func() bool { return time.Since(begun) >= tt.caughtUp })
			sleep(0)
			wantLeading(t, a, false)
			fakeapi.Want(t, "holder after a step-down", s.holder(), "")
			sleep(tt.back - 2100*time.Millisecond)
			wantLeading(t, a, false)
			sleep(2100 * time.Millisecond)
			wantLeading(t, a, true)
			sleep(time.Hour)
			fakeapi.Want(t, "terms after one step-down", len(a.spans()), 2)
		})
	}
}

// A leader without other candidates does not alternate between terms and stand-downs: after one
// stand-down the leader continues.
func TestStepDownWithoutOtherCandidates(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a")
		never := func() bool { return false }
		staleFor := func(d time.Duration) { // the freshness monitor calls StepDown every 30 s
			for range d / (30 * time.Second) {
				a.StepDown("pods are stale", never)
				sleep(30 * time.Second)
			}
		}
		staleFor(5 * time.Minute)
		wantLeading(t, a, true)
		fakeapi.Want(t, "terms in five minutes", len(a.spans()), 2)
		staleFor(5 * time.Minute)
		fakeapi.Want(t, "terms in ten minutes", len(a.spans()), 3) // another candidate may have come
		s.hold("another")                                          // another candidate exists
		sleep(20 * time.Second)
		wantLeading(t, a, true)
		a.StepDown("pods are stale", never)
		sleep(0)
		wantLeading(t, a, false)
	})
}

// With stale caches in all processes, one of them leads nevertheless.
func TestStepDownOfAllProcesses(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		ps, led := []*process{start(t, s, "a"), start(t, s, "b")}, 0
		for range 20 {
			for _, p := range ps { // the freshness monitors call StepDown every 30 s
				p.StepDown("pods are stale", func() bool { return false })
			}
			oneWriter(t, 15*time.Second, ps...)
			if ps[0].leads() || ps[1].leads() {
				led++
			}
			oneWriter(t, 15*time.Second, ps...)
		}
		if led < 15 {
			t.Errorf("a process led in %d of 20 periods, want at least 15", led)
		}
	})
}

// A step-down hands over even if controllers do not return: the lease is not renewed any more. Once the controllers
// have returned, the process competes again.
func TestStepDownWithSlowControllers(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		slow := func(p *process, _ *Config) {
			takes := time.Minute // in the first term
			p.work = func(context.Context) error { time.Sleep(takes); takes = 0; return nil }
		}
		a, b := start(t, s, "a", slow), start(t, s, "b")
		sleep(time.Minute)
		a.StepDown("stale", nil)
		sleep(10*time.Second + 15*time.Second) // the drain and a lease
		wantLeading(t, b, true)
		wantWritable(t, a, false)
		b.cancel()
		sleep(2 * time.Minute)
		wantLeading(t, a, true)
	})
}

// A stand-down also applies to a free lease. That of a standby ends no later term.
func TestStepDownHandsOver(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a, b := start(t, s, "a"), start(t, s, "b")
		b.StepDown("stale", nil)
		sleep(time.Minute) // longer than the cool-down
		a.StepDown("stale", nil)
		sleep(0)
		wantLeading(t, a, false)
		sleep(10 * time.Second)
		wantLeading(t, b, true)
		fakeapi.Want(t, "terms of b", len(b.spans()), 1)
		b.cancel()
		sleep(time.Second)
		wantLeading(t, a, false)
		sleep(time.Minute)
		wantLeading(t, a, true)
	})
}

func TestWithoutElection(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "", func(_ *process, c *Config) { *c = Config{ShutdownTimeout: 10 * time.Second} })
		a.Observe(&coordinationv1.Lease{})
		a.StepDown("stale", nil)
		sleep(time.Hour)
		wantLeading(t, a, true)
		a.cancel()
		<-a.done
		fakeapi.Want(t, "result of Run", a.err, nil)
		wantWritable(t, a, false)
		fakeapi.Want(t, "requests about a lease", a.conn.requests(), 0)
	})
}

func TestAThousandLosses(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a")
		sleep(time.Second)
		before := runtime.NumGoroutine()
		for range 1000 {
			s.hold("thief")
			sleep(0)
			s.hold("")
			sleep(time.Millisecond)
		}
		sleep(time.Minute)
		wantLeading(t, a, true)
		if got := len(a.spans()); got < 900 {
			t.Errorf("%d terms: the test shows nothing", got)
		}
		if after := runtime.NumGoroutine(); after > before+10 { // a renewal may be in flight; a leak is a thousand
			t.Errorf("%d goroutines before, %d after", before, after)
		}
	})
}

func TestTwoProcessesNeverLeadTogether(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		ps := []*process{start(t, s, "a"), start(t, s, "b"), start(t, s, "c")}
		for i := range 300 {
			p := ps[i%3]
			switch i % 5 {
			case 0:
				p.conn.set(func(c *conn) { c.err = errors.New("cut off") })
			case 1:
				p.conn.set(func(c *conn) { c.slow = 3 * time.Second })
			case 2:
				p.StepDown("stale", nil)
			case 3:
				p.conn.set(func(c *conn) { c.frozen = true })
			case 4:
				p.conn.set(func(c *conn) { c.err, c.slow, c.frozen = nil, 0, false })
			}
			oneWriter(t, 10*time.Second, ps...)
		}
		total := 0
		for _, p := range ps {
			total += len(p.spans())
			p.conn.set(func(c *conn) { c.err, c.slow = nil, 0 })
		}
		if total < 20 {
			t.Errorf("only %d terms: the test shows nothing", total)
		}
	})
}
