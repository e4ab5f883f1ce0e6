package leadership

import "time"

// phase says how far a term has come. Each has at most one timer.
type phase int

const (
	serving          phase = iota // controllers work; no timer
	draining                      // they finish what runs; until the shutdown timeout
	waitingForWrites              // they have returned, but what they sent may still be done; until the shutdown timeout, too
	joining                       // their requests were cut, they have to return; as joinTimeout says if the process stops, else without end
	clean                         // the end: nothing of the term can be done any more
	broken                        // the end: what was cut or not answered may still be done, or controllers have not returned
)

// event is what happens to a term.
type event int

const (
	leadReturned    event = iota // Lead has returned
	lost                         // the lease is in other hands, or was not renewed in time
	stopped                      // the process is told to stop
	steppedDown                  // StepDown was called
	timedOut                     // the timer of the phase has fired
	writesCompleted              // nothing is in flight, and nothing that was not answered can be done any more
)

// next is the phase after an event. What changes nothing stays without effect.
func (p phase) next(ev event) phase {
	switch p {
	case serving:
		switch ev {
		case leadReturned:
			return waitingForWrites
		case lost:
			return joining
		case stopped, steppedDown:
			return draining
		}
	case draining:
		switch ev {
		case leadReturned:
			return waitingForWrites
		case lost, timedOut:
			return joining
		}
	case waitingForWrites:
		switch ev {
		case lost, timedOut:
			return broken
		case writesCompleted:
			return clean
		}
	case joining:
		switch ev {
		case leadReturned, timedOut:
			return broken
		}
	}
	return p
}

// over says whether the term is.
func (p phase) isOver() bool { return p == clean || p == broken }

// settle decides how the settling phase goes on once no request is in flight. settled is the first moment at which no unanswered write can still be
// carried out; bound is when the phase has to end, zero for never. If the phase is over, over is true and ev says how it ended: landed, or timedOut
// if settled lies beyond bound, which is not waited for then. Otherwise wait is the time until settled.
func decideWait(settled, bound, now time.Time) (ev event, over bool, wait time.Duration) {
	switch {
	case !settled.After(now):
		return writesCompleted, true, 0
	case !bound.IsZero() && settled.After(bound):
		return timedOut, true, 0
	}
	return 0, false, settled.Sub(now)
}
