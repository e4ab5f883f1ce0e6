package garbagecollector

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/outcome"
)

const (
	// liveFor is the time for which a live read of an owner is valid for decisions.
	liveFor = 10 * time.Second
	// objectFor is the time for which a live read of an object is valid if its API may ignore preconditions.
	objectFor = time.Second
	// waitingFor is how long the response is valid that an owner waits for its dependents: the deletion may be changed to orphan them.
	waitingFor = time.Second
	// settled is for how long a feed must have been heard from, and a reference seen, before what the feed lacks says something, and how far apart two
	// answers must be that confirm each other: longer than events of one object are behind those of another.
	settled = 2 * time.Second
	// syncPatience is how long dependents wait for the first list of the owner's type instead of asking for every owner.
	syncPatience = 10 * time.Second
	// Pauses after requests that failed, doubled from the first to the last. They are per owner.
	minPause = time.Second
	maxPause = time.Minute
	// Owners whose deletion no feed shows are read every 5 to 6 minutes.
	pollEvery  = 5 * time.Minute
	pollJitter = time.Minute
)

// verdict is what is known of the owner that a reference names.
type verdict uint8

const (
	unknown verdict = iota // nothing may be done on its account
	present                // it exists, and its dependents stay
	waiting                // it waits for its dependents to be deleted
	absent                 // it does not exist, and never will again: UIDs are not given twice
)

// witness is what a verdict rests on; also a label of metrics.
type witness string

const (
	byFeed      witness = "feed"       // the feed shows the owner alive: enough to do nothing
	byAnswer    witness = "answer"     // the API server showed it
	otherUID    witness = "other_uid"  // the API server showed another object under its name
	deletedToo  witness = "deletion"   // not found, and its feed told of the deletion
	notListed   witness = "feed_lacks" // not found, and its feed, which is up to date, does not show it
	askedTwice  witness = "asked_twice"
	kindRemoved witness = "kind_removed" // its feed told of the deletion, and its kind is no longer served
	noSuchName  witness = "impossible_name"
)

// saying is what an answer of the API server to a request for an owner says. The last three are also labels of metrics.
type saying string

const (
	unasked saying = ""
	found   saying = "found"       // an object of this name
	missing saying = "missing"     // that there is no object of this name
	unnamed saying = "unnamed_404" // 404, but not about the object: this server may not know the type, or not yet
	refused saying = "refused"     // that we may not ask, or not so
	unable  saying = "unable"      // nothing that could be relied on, or nothing at all
)

// sayingOf reads an answer. m is not looked at if there is an error.
func sayingOf(m metav1.Object, err error, name string) saying {
	var status apierrors.APIStatus
	switch {
	case err == nil && m.GetUID() == "":
		return unable // what has no identity can be nobody's owner
	case err == nil:
		return found
	case !errors.As(err, &status):
		return unable
	}
	switch code := status.Status().Code; {
	case outcome.IsNotFound(err, name):
		return missing
	case code == http.StatusNotFound || apierrors.IsNotFound(err):
		return unnamed
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusMethodNotAllowed, code == http.StatusNotAcceptable:
		return refused
	}
	return unable
}

// reply is the latest answer about a target. It serves everybody who refers to it, with whatever UID.
type reply struct {
	says            saying
	uid             types.UID // of what was found
	leaving         bool      // what was found waits for its dependents
	asked, answered time.Time
	failures        int // in a row: answers that say nothing about the owner
	// When two answers that said missing were asked for, at least settled apart, if the target was never found in between or since. A further one, settled
	// after later, becomes later, and later becomes earlier. Zero: there is no such answer.
	earlier, later time.Time
	poll           time.Time // next read of an owner that was found and whose deletion no feed shows
}

// then is the reply that follows another. m is what was found. One that was asked for before the other tells nothing new, however late it comes.
func (a reply) then(says saying, m metav1.Object, asked, answered time.Time) reply {
	if asked.Before(a.asked) {
		return a
	}
	next := reply{says: says, asked: asked, answered: answered}
	switch says {
	case found:
		next.uid, next.leaving = m.GetUID(), marksOf(m).waiting()
	case missing:
		next.earlier, next.later = a.earlier, a.later
		if a.later.IsZero() || asked.Sub(a.later) >= settled {
			next.earlier, next.later = a.later, asked
		}
	default: // it takes back nothing of what was said before
		next.earlier, next.later, next.failures = a.earlier, a.later, a.failures+1
	}
	return next
}

// age is for how long the answer has been known. What counts is when it came: from a server that takes longer than liveFor none would ever be good.
func (a reply) age(now time.Time) time.Duration { return now.Sub(a.answered) }

// about is what a reply says of a reference that was first seen at a moment. Who wrote the reference had seen the owner. So an answer that was asked
// for afterwards proves something, and one before may be about what had the name until then, or about a name that nobody had yet.
func (a reply) about(since time.Time) reply {
	if a.later.Before(since) {
		a.later = time.Time{}
	}
	if a.earlier.Before(since) {
		a.earlier = time.Time{}
	}
	if a.failures == 0 && a.asked.Before(since) {
		return reply{}
	}
	return a
}

// testimony is all that is known about the owner that one reference names.
type testimony struct {
	suspicion           // the graph's
	uid       types.UID // that the reference names
	problem   problem   // nobody can be asked
	// removed: a discovery sent after the deletion, complete for the group, has shown that the kind is no longer served.
	removed bool
	syncing time.Duration // how long the feed of its type has been waiting for its first list; 0: it is not
	heard   time.Duration // how long the feed has been up to date, without a break; 0: it is not, it cannot witness, or there is none
	live    reply
	look    time.Time // when this look at the object began
}

// ruling is what testimony amounts to.
type ruling struct {
	verdict verdict
	witness witness       // empty for unknown
	ask     bool          // an answer of the API server is needed first, which there is not or which is too old
	after   time.Duration // when to look again if nothing happens; 0: there is no need
	held    string        // why it is unknown; a label of metrics
}

// judge weighs testimony. What the feed shows is enough to leave an object alone. To delete it takes an answer of the API server and
// something else that says the same.
func judge(t testimony, now time.Time) ruling {
	t.live = t.live.about(t.since)
	switch {
	case t.doubt == none:
		return ruling{verdict: present, witness: byFeed}
	case t.uid == "": // as other servers allow; everything would be another than it
		return ruling{held: string(unparsable)}
	case t.problem == unserved && !t.gone.IsZero() && t.removed:
		return ruling{verdict: absent, witness: kindRemoved}
	case t.problem == impossible:
		return ruling{verdict: absent, witness: noSuchName}
	case t.problem != fine:
		return ruling{held: string(t.problem)} // discovery wakes it
	case t.doubt == unseen && t.gone.IsZero() && t.syncing > 0 && t.syncing < syncPatience:
		return ruling{after: syncPatience - t.syncing, held: "syncing"}
	case t.live.says == unasked:
		return ruling{ask: true}
	case t.live.failures > 0:
		if pause := pauseAfter(t.live.failures) - t.live.age(now); pause > 0 {
			return ruling{after: pause, held: string(t.live.says)}
		}
		return ruling{ask: true}
	case t.polled() && now.Before(t.live.poll):
		return ruling{verdict: present, witness: byAnswer, after: t.live.poll.Sub(now)}
	case t.live.age(now) > liveFor:
		return ruling{ask: true}
	case t.live.says == missing:
		return confirmed(t, now)
	}
	if t.live.uid != t.uid {
		return ruling{verdict: absent, witness: otherUID}
	}
	if t.live.leaving || t.doubt == leaving || !t.departed.IsZero() {
		// That an owner waits can come to an end, and an answer that it lives may be from before a feed told of its deletion. So it is asked for at
		// each look, and those share an answer that begin while it is on its way.
		if t.live.asked.Before(t.look) || t.live.leaving && t.live.age(now) > waitingFor {
			return ruling{ask: true}
		}
	}
	switch {
	case t.live.leaving:
		return ruling{verdict: waiting, witness: byAnswer}
	case t.doubt == unseen && t.heard > 0 && t.gone.IsZero():
		// Either its feed is late, or it has gone since it was found, and the list lacks it: then no event comes.
		return ruling{verdict: present, witness: byAnswer, after: min(max(t.lacking(now), liveFor), pollEvery)}
	case t.doubt == unseen:
		return ruling{verdict: present, witness: byAnswer, after: pollEvery}
	}
	return ruling{verdict: present, witness: byAnswer}
}

// lacking is for how long the feed would have shown the owner, if there were one.
func (t testimony) lacking(now time.Time) time.Duration { return min(t.heard, now.Sub(t.since)) }

// polled reports whether the owner was found, and no feed would tell if it went: none sees it, or can witness. To leave its dependents alone meanwhile is
// late, and no more. If a feed tells all the same, it is asked for again.
func (t testimony) polled() bool {
	return t.untold() && t.live.says == found && t.live.uid == t.uid && !t.live.leaving && !t.live.asked.Before(t.departed)
}

// untold reports whether no feed would tell if the owner went.
func (t testimony) untold() bool { return t.doubt == unseen && t.gone.IsZero() && t.heard == 0 }

// confirmed looks for something that says, too, that an owner does not exist which the API server did not find.
func confirmed(t testimony, now time.Time) ruling {
	lacking := t.lacking(now)
	if t.doubt == leaving {
		lacking = 0 // it does show it
	}
	switch {
	case !t.gone.IsZero():
		return ruling{verdict: absent, witness: deletedToo}
	case lacking >= settled:
		return ruling{verdict: absent, witness: notListed}
	case !t.live.earlier.IsZero():
		return ruling{verdict: absent, witness: askedTwice}
	}
	first := t.live.later
	if first.IsZero() { // it is about something else; the latest answer is not
		first = t.live.asked
	}
	wait := min(settled-lacking, first.Add(settled).Sub(now))
	if wait <= 0 {
		return ruling{ask: true}
	}
	return ruling{after: wait, held: "unconfirmed"}
}

// pauseAfter is how long an owner is not asked for after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return min(minPause<<min(failures-1, 10), maxPause)
}
