package leadership

import (
	"errors"
	"io"
	"testing"
	"time"

	"minikcm/internal/fakeapi"
)

func TestStolenLease(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frozen bool
		within time.Duration
	}{
		{"seen by the watch", false, 0},
		{"seen by the next renewal", true, 2 * time.Second},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a := start(t, s, "a")
			sleep(time.Minute)
			a.conn.set(func(c *conn) { c.frozen = tt.frozen })
			stolen := time.Now()
			s.hold("thief")
			sleep(tt.within)
			wantLeading(t, a, false)
			if got := a.spans()[0].stoppedAt.Sub(stolen); got > tt.within {
				t.Errorf("the term ended %v after the theft, want %v", got, tt.within)
			}
			fakeapi.Want(t, "holder", s.holder(), "thief")
			sleep(20 * time.Second)
			wantLeading(t, a, true)
			wantTakeover(t, a, CauseExpired)
			fakeapi.Want(t, "terms", len(a.spans()), 2)
		})
	}
}

func TestOutageEndsTheTermButNotTheProcess(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a")
		sleep(time.Minute)
		a.conn.set(func(c *conn) { c.err = errors.New("connection refused") })
		down := time.Now()
		sleep(time.Minute)
		wantLeading(t, a, false)
		first := a.spans()[0]
		if got := first.stoppedAt.Sub(down); got < 8*time.Second || got > 13500*time.Millisecond {
			t.Errorf("the term ended %v after the last renewal could be sent", got)
		}
		fakeapi.Want(t, "writable at the end of the term", first.writable, false)
		a.conn.set(func(c *conn) { c.err = nil })
		sleep(2 * time.Second)
		wantLeading(t, a, true)
		wantTakeover(t, a, CauseReacquired)
	})
}

// Responses take 4 s, so the renew deadline ends after the deadline of writes.
func TestWritesEndBeforeTheLeaseCanBeTaken(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a, b := start(t, s, "a"), start(t, s, "b")
		a.conn.set(func(c *conn) { c.slow = 4 * time.Second })
		sleep(time.Minute)
		wantLeading(t, a, true)
		a.conn.set(func(c *conn) { c.err = errors.New("cut off") })
		var closed, taken time.Time
		for taken.IsZero() {
			sleep(10 * time.Millisecond)
			if closed.IsZero() && !a.writable() {
				closed = time.Now()
			}
			if len(b.spans()) > 0 {
				taken = time.Now()
			}
		}
		if stopped := a.spans()[0].stoppedAt; stopped.After(closed) {
			t.Errorf("the term ended %v after the fence had closed", stopped.Sub(closed))
		}
		if closed.IsZero() || taken.Sub(closed) < 1500*time.Millisecond-10*time.Millisecond {
			t.Errorf("a's fence closed %v before b led, want at least the margin of 1.5s", taken.Sub(closed))
		}
	})
}

// While storage accepts no writes, no process can acquire the lease, and a stand-down would be useless.
func TestLeaseIsTakenSoonAfterItCanBeWritten(t *testing.T) {
	runWithLease(t, func(t *testing.T, s *leaseServer) {
		a, b := start(t, s, "a"), start(t, s, "b")
		sleep(time.Minute)
		for _, p := range []*process{a, b} {
			p.conn.set(func(c *conn) { c.late = time.Hour })
		}
		sleep(30 * time.Second)
		wantLeading(t, a, false)
		wantLeading(t, b, false)
		for _, p := range []*process{a, b} {
			p.conn.set(func(c *conn) { c.late = 0 })
		}
		sleep(10 * time.Second) // a running attempt and a poll
		if !a.leads() && !b.leads() {
			t.Error("no process leads 10 s after the lease can be written again")
		}
	})
}

// The renewals of the holder succeed without a response, or later: the lease never expires, but the holder
// cannot write.
func TestHolderWithoutResponsesStepsDown(t *testing.T) {
	for _, tt := range []struct {
		name         string
		lostResponse error         // of updates
		reads        bool          // every second read fails
		late         time.Duration // of updates
		within       time.Duration // another process leads: the renew deadline, some attempts, a lease duration
	}{
		{"responses are lost", io.ErrUnexpectedEOF, false, 0, 45 * time.Second},
		{"responses are lost, and those of every second read", io.ErrUnexpectedEOF, true, 0, 45 * time.Second},
		{"renewals are applied after their timeout", nil, false, 10 * time.Second, 2 * time.Minute},
	} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			a, b := start(t, s, "a"), start(t, s, "b")
			sleep(time.Minute)
			a.conn.set(func(c *conn) {
				c.lostResponse, c.late = tt.lostResponse, tt.late
				reads := 0
				c.before = func(verb string) {
					if verb == "get" {
						reads++
					}
					c.set(func(c *conn) {
						if c.err = nil; tt.reads && verb == "get" && reads%2 == 0 {
							c.err = tt.lostResponse
						}
					})
				}
			})
			oneWriter(t, tt.within, a, b)
			wantLeading(t, a, false)
			wantLeading(t, b, true)
			a.conn.set(func(c *conn) { c.lostResponse, c.late, c.err, c.before = nil, 0, nil, nil })
			oneWriter(t, time.Minute, a, b)
			b.cancel()
			sleep(time.Second)
			wantLeading(t, a, true)
		})
	}
}

// The watch shows another holder before the response to the write that acquired the lease.
func TestSuccessorSeenBeforeResponse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		exists bool
	}{{"a new Lease", false}, {"a released Lease", true}} {
		bubble(t, tt.name, func(t *testing.T, s *leaseServer) {
			if tt.exists {
				s.hold("")
			}
			a := start(t, s, "a", func(p *process, _ *Config) { p.conn.slow = 3 * time.Second })
			sleep(4 * time.Second)
			if s.holder() != "a" {
				t.Fatalf("holder = %q while a's write has no response yet, want a", s.holder())
			}
			s.hold("thief")
			sleep(10 * time.Second)
			fakeapi.Want(t, "terms of a", len(a.spans()), 0)
		})
	}
}
