package leadership

import (
	"testing"

	"minikcm/internal/fakeapi"
)

func TestPhases(t *testing.T) {
	events := []event{leadReturned, lost, stopped, steppedDown, timedOut, writesCompleted}
	names := []string{"returned", "lost", "stopped", "stepped down", "timed out", "landed"}
	for _, tt := range []struct {
		name string
		from phase
		to   []phase // in the order of events
	}{
		{"leading", leading, []phase{waitingForWrites, joining, draining, draining, leading, leading}},
		{"draining", draining, []phase{waitingForWrites, joining, draining, draining, joining, draining}},
		{"settling", waitingForWrites, []phase{waitingForWrites, broken, waitingForWrites, waitingForWrites, broken, clean}},
		{"joining", joining, []phase{broken, joining, joining, joining, broken, joining}},
		{"clean", clean, []phase{clean, clean, clean, clean, clean, clean}},
		{"broken", broken, []phase{broken, broken, broken, broken, broken, broken}},
	} {
		for i, ev := range events {
			fakeapi.Want(t, tt.name+", "+names[i], tt.from.next(ev), tt.to[i])
		}
	}
}
