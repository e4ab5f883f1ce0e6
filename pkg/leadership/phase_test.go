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
		{"leading", leading, []phase{waitingForWrites, aborting, draining, draining, leading, leading}},
		{"draining", draining, []phase{waitingForWrites, aborting, draining, draining, aborting, draining}},
		{"settling", waitingForWrites, []phase{waitingForWrites, undrained, waitingForWrites, waitingForWrites, undrained, drained}},
		{"aborting", aborting, []phase{undrained, aborting, aborting, aborting, undrained, aborting}},
		{"drained", drained, []phase{drained, drained, drained, drained, drained, drained}},
		{"undrained", undrained, []phase{undrained, undrained, undrained, undrained, undrained, undrained}},
	} {
		for i, ev := range events {
			fakeapi.Want(t, tt.name+", "+names[i], tt.from.next(ev), tt.to[i])
		}
	}
}
