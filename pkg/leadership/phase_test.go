package leadership

import (
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
