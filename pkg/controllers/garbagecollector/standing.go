package garbagecollector

import "time"

const (
	// quietFor is after how long without a byte a feed is doubted: bookmarks come every one or two minutes.
	quietFor = 3 * time.Minute
	// keptFor is how long the objects of a type are kept that is no longer served: it may only be changing its version.
	keptFor = 10 * time.Minute
)

// phase is how far the feed of a type has come.
type phase string

const (
	listing phase = "listing" // for the first time, or anew because its watch was lost or its type away
	current phase = "current" // listed, and heard from
	silent  phase = "silent"  // listed once, and not heard from
	away    phase = "away"    // its type is not served, and there is no feed
)

// occurrence is what happens to a feed.
type occurrence string

const (
	listed   occurrence = "listed"    // a list has come
	heard    occurrence = "heard"     // an event or a bookmark has come
	lost     occurrence = "lost"      // its watch has ended, and it has to list anew
	quiet    occurrence = "quiet"     // nothing has come for quietFor, or its watch is refused
	shown    occurrence = "shown"     // discovery shows the type
	notShown occurrence = "not shown" // discovery does not, and none of the versions of its group failed
)

// standing is the phase of a feed, and since when it has been in it.
type standing struct {
	phase phase
	since time.Time
}

// after is the standing that follows. Whatever is not said here changes nothing.
func (s standing) after(what occurrence, now time.Time) standing {
	switch {
	case what == notShown && s.phase != away:
		return standing{away, now}
	case what == shown && s.phase == away, what == lost && (s.phase == current || s.phase == silent):
		return standing{listing, now}
	case what == listed && (s.phase == listing || s.phase == silent), what == heard && s.phase == silent:
		return standing{current, now}
	case what == quiet && s.phase == current:
		return standing{silent, now}
	}
	return s
}

// heardFor is how long the feed has been up to date without a break; 0: it is not.
func (s standing) heardFor(now time.Time) time.Duration {
	if s.phase != current {
		return 0
	}
	return now.Sub(s.since)
}

// listingFor is how long the feed has been waiting for its first list; 0: it is not.
func (s standing) listingFor(now time.Time) time.Duration {
	if s.phase != listing {
		return 0
	}
	return max(now.Sub(s.since), 1) // from the first moment
}
