package leadership

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestPhases(t *testing.T) {
	events := []event{leadReturned, lost, stopped, steppedDown, timedOut, writesCompleted}
	names := []string{"returned", "lost", "stopped", "stepped down", "timed out", "landed"}
	for _, tt := range []struct {
		name string
		from phase
		to   []phase // in the order of events
	}{
		{"serving", serving, []phase{waitingForWrites, joining, draining, draining, serving, serving}},
		{"draining", draining, []phase{waitingForWrites, joining, draining, draining, joining, draining}},
		{"settling", waitingForWrites, []phase{waitingForWrites, broken, waitingForWrites, waitingForWrites, broken, clean}},
		{"joining", joining, []phase{broken, joining, joining, joining, broken, joining}},
		{"clean", clean, []phase{clean, clean, clean, clean, clean, clean}},
		{"broken", broken, []phase{broken, broken, broken, broken, broken, broken}},
	} {
		for i, ev := range events {
			if got := tt.from.next(ev); got != tt.to[i] {
				t.Errorf("%s, %s: phase %d, want %d", tt.name, names[i], got, tt.to[i])
			}
		}
	}
}

func TestSettle(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	for _, tt := range []struct {
		name           string
		settled, bound time.Time
		ev             event
		over           bool
		wait           time.Duration
	}{
		{"everything was answered", time.Time{}, at(20), writesCompleted, true, 0},
		{"the last deadline is now", at(10), at(20), writesCompleted, true, 0},
		{"the last deadline comes in time", at(13), at(20), 0, false, 3 * time.Second},
		{"the last deadline is when the phase must end", at(20), at(20), 0, false, 10 * time.Second},
		{"the last deadline comes too late: waiting helps nobody", at(21), at(20), timedOut, true, 0},
		{"there is all the time in the world", at(21), time.Time{}, 0, false, 11 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ev, over, wait := decideWait(tt.settled, tt.bound, at(10))
			if ev != tt.ev || over != tt.over || wait != tt.wait {
				t.Errorf("settle = %d, %v, %v; want %d, %v, %v", ev, over, wait, tt.ev, tt.over, tt.wait)
			}
		})
	}
}

// After a loss, controllers have joinTimeout to return, not the rest of the shutdown timeout.
func TestLossDuringADrain(t *testing.T) {
	slow := func(d time.Duration) func(*process, *Config) {
		return func(p *process, _ *Config) {
			var once sync.Once
			p.work = func(context.Context) error {
				once.Do(func() { time.Sleep(d) })
				return nil
			}
		}
	}
	bubble(t, "after a step-down the process goes on, however slow its controllers are", func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a", slow(30*time.Second))
		a.StepDown("stale", nil)
		sleep(time.Second)
		s.hold("thief")
		sleep(2 * time.Minute)
		select {
		case <-a.done:
			t.Fatalf("Run = %v, want it to go on: losing the lease is an end of a term", a.err)
		default:
		}
		wantLeading(t, a, true)
	})
	bubble(t, "at a shutdown controllers have a moment to return", func(t *testing.T, s *leaseServer) {
		a := start(t, s, "a", slow(11*time.Second))
		a.cancel()
		sleep(9900 * time.Millisecond)
		s.hold("thief")
		<-a.done
		if a.err != nil {
			t.Errorf("Run = %v, want nil: controllers returned a second after they were cut", a.err)
		}
	})
}
