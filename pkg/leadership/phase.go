package leadership

import "time"

// phase is the state of a term. A phase has at most one timer.
type phase int

const (
	leading          phase = iota // controllers work; no timer
	draining                      // controllers finish their syncs, until the shutdown timeout
	waitingForWrites              // controllers have returned, writes may still complete; until the shutdown timeout
	aborting                      // controllers must return after a cancellation; at shutdown with a timeout
	drained                       // final: all writes of the term have completed
	undrained                     // final: writes may still complete, or controllers have not returned
)

// event is an event in the life of a term.
type event int

const (
	leadReturned    event = iota // Lead has returned
	lost                         // another process holds the lease, or the renew deadline has passed
	stopped                      // the process is shutting down
	steppedDown                  // StepDown was called
	timedOut                     // the timer of the phase has fired
	writesCompleted              // no request is in flight, and no write has an unknown outcome
)

// next returns the phase after an event. All other events leave the phase unchanged.
func (p phase) next(ev event) phase {
	switch p {
	case leading:
		switch ev {
		case leadReturned:
			return waitingForWrites
		case lost:
			return aborting
		case stopped, steppedDown:
			return draining
		}
	case draining:
		switch ev {
		case leadReturned:
			return waitingForWrites
		case lost, timedOut:
			return aborting
		}
	case waitingForWrites:
		switch ev {
		case lost, timedOut:
			return undrained
		case writesCompleted:
			return drained
		}
	case aborting:
		switch ev {
		case leadReturned, timedOut:
			return undrained
		}
	}
	return p
}

func (p phase) isOver() bool { return p == drained || p == undrained }

// decideWait decides how waitingForWrites continues once no request is in flight. unknownUntil is the
// first moment at which no write has an unknown outcome. phaseDeadline is the end of the phase, zero
// for none. If wait is 0, ev ends the phase: writesCompleted, or timedOut if unknownUntil is after
// phaseDeadline, because waiting would be useless. Otherwise wait is the time until unknownUntil.
func decideWait(unknownUntil, phaseDeadline, now time.Time) (ev event, wait time.Duration) {
	switch {
	case !unknownUntil.After(now):
		return writesCompleted, 0
	case !phaseDeadline.IsZero() && unknownUntil.After(phaseDeadline):
		return timedOut, 0
	}
	return 0, unknownUntil.Sub(now)
}
