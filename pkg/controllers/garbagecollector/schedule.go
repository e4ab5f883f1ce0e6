package garbagecollector

import (
	"context"
	"time"

	"minikcm/internal/timing"
)

const (
	// lookEvery is how often discovery is asked if nothing happens.
	lookEvery = 5 * time.Minute
	// Pauses after a discovery that was incomplete, doubled from the first to the last.
	minLookPause = time.Second
	maxLookPause = 30 * time.Second
	// Rests after any discovery, doubled from the first to the last until no event has come for as long as echoes take. Who changes a definition all
	// the time, or an API that comes and goes, is not to keep every replica busy.
	minRest = 500 * time.Millisecond
	maxRest = 10 * time.Second
	// newcomerRest is the longest one when a definition comes or goes: somebody waits for its type.
	newcomerRest = time.Second
	// askedRest is for those who have asked for a discovery of their own: it serves all who have asked until then.
	askedRest = 200 * time.Millisecond
)

// echoes are how long after an event, of a CustomResourceDefinition or an APIService, discovery is asked: what the event is about comes into
// it, or goes out of it, some moments later, and a server that was repaired is asked for its types by the aggregator after some seconds.
var echoes = [...]time.Duration{250 * time.Millisecond, 750 * time.Millisecond, 1500 * time.Millisecond, 4 * time.Second, 10 * time.Second, 30 * time.Second}

// lateEcho is the first one after the first list: discovery was asked moments before, and has shown what is in it.
const lateEcho = 4

// stir is what makes discovery worth asking, the more the higher.
type stir int

const (
	calm     stir = iota
	filled        // the first list has come
	changed       // something has changed
	newcomer      // something has come or gone
)

// schedule is when discovery is asked next.
type schedule struct {
	next  time.Time
	last  time.Time     // when discovery was last asked
	rest  time.Duration // least time after last, whatever happens
	event time.Time     // when the latest event came
	echo  int           // index of the next of echoes; their number: they are over
	pause time.Duration // least time after last if the answer was incomplete; 0: it was complete
}

// after is the schedule after an event.
func (s schedule) after(what stir, now time.Time) schedule {
	quiet := s.event.IsZero() || now.Sub(s.event) > echoes[len(echoes)-1]
	echo := 0
	switch {
	case what == filled && !quiet:
		return s
	case what == filled:
		echo = lateEcho
	case quiet:
		s.rest = 0
	case what == newcomer:
		s.rest = min(s.rest, newcomerRest)
	}
	s.event, s.echo, s.pause = now, echo, 0
	s.next = timing.Earlier(s.next, s.rested(now.Add(echoes[echo])))
	return s
}

// soon is the schedule after somebody has asked for a discovery of his own: an owner is held until it comes, so it does not rest for as long as after events.
func (s schedule) soon(now time.Time) schedule {
	s.next = timing.Earlier(s.next, timing.Later(now, s.last.Add(max(s.pause, askedRest))))
	return s
}

// looked is the schedule after a discovery.
func (s schedule) looked(complete bool, now time.Time) schedule {
	s.last, s.rest = now, min(max(2*s.rest, minRest), maxRest)
	s.next = now.Add(lookEvery)
	if !complete {
		s.pause = min(max(2*s.pause, minLookPause), maxLookPause)
		s.next = s.rested(now.Add(s.pause))
	} else {
		s.pause = 0
	}
	if s.event.IsZero() {
		return s
	}
	for ; s.echo < len(echoes); s.echo++ {
		if at := s.event.Add(echoes[s.echo]); at.After(now) {
			s.next = timing.Earlier(s.next, s.rested(at))
			break
		}
	}
	return s
}

// rested is a moment, or a later one if there has to be a rest until then.
func (s schedule) rested(at time.Time) time.Time { return timing.Later(at, s.last.Add(s.rest)) }

// looking asks which types there are: at once, after events, when somebody wants to know, and now and then.
func (t *knownTypes) looking(ctx context.Context) {
	now := t.deps.Clock.Now()
	s := schedule{next: now}
	timer := t.deps.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.woken:
			what, wanted := t.wishes()
			now := t.deps.Clock.Now()
			if what > calm {
				s = s.after(what, now)
			}
			if wanted {
				s = s.soon(now)
			}
		case <-timer.C():
			complete := t.look(ctx)
			s = s.looked(complete, t.deps.Clock.Now())
		}
		timer.Stop()
		select { // what it has sent may be from before
		case <-timer.C():
		default:
		}
		timer.Reset(s.next.Sub(t.deps.Clock.Now()))
	}
}

// wake has discovery asked soon.
func (t *knownTypes) wake(what stir) {
	t.lock.Lock()
	t.stirred = max(t.stirred, what)
	t.lock.Unlock()
	signal(t.woken)
}

// wishes takes what there has been of events, and whether somebody still waits for a discovery.
func (t *knownTypes) wishes() (what stir, wanted bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	what, t.stirred = t.stirred, calm
	return what, !t.latest.sent.After(t.awaited)
}

// discoveredSince reports whether the types that are known are those of a discovery that was asked for after a moment. If they are not, it is asked soon.
// A type that a discovery from before did not show may have come since, with objects. Groups that did not answer are in [knownTypes.unknownGroups].
func (t *knownTypes) discoveredSince(moment time.Time) bool {
	t.lock.Lock()
	known := t.latest.sent.After(moment)
	if !known {
		t.awaited = timing.Later(t.awaited, moment)
	}
	t.lock.Unlock()
	if !known {
		signal(t.woken)
	}
	return known
}
