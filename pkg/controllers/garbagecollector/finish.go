package garbagecollector

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// ringPatience is how long an owner is held by as many dependents, which wait themselves, before a ring is looked for: blockers need a moment to go.
	ringPatience = time.Second
	// blindPatience is how long a foreground deletion waits for the first list of a type. A dependent that is missed is deleted later.
	blindPatience = 30 * time.Second
	// A waiting owner is looked at again after as long as it has waited, within these bounds, in case an event was missed.
	minRecheck = 30 * time.Second
	maxRecheck = 5 * time.Minute
	// An owner that waits for discovery only is looked at again after as long as it has waited, within minDiscovery and minPause.
	minDiscovery = 20 * time.Millisecond
)

// ownerSight is what there is to know of an object that is being deleted and has a finalizer of ours. The owner has been read live, or
// nothing was decided about it.
type ownerSight struct {
	meant    types.UID // the owner that is to be let go; a live read by its name may have shown another
	owner    object
	blocking int           // dependents that hold it, in the graph or in lists
	idle     int           // those of them that are not being deleted
	waiting  int           // those that wait for dependents of their own
	ring     bool          // it waits, in the end, for itself, and is the one that is no longer to
	refs     int           // dependents whose references to it are not known to be gone
	looked   bool          // the types that may hold a dependent have been listed: when orphaning, all of them, since the deletion was seen to be so
	blind    int           // types that could not be listed, or are not seen
	again    time.Duration // when the first of those can be tried again that do not answer; 0: nobody knows
	waited   time.Duration // since it was seen to be deleted
	still    time.Duration // for which it has been held by as many
	// undiscovered: which types there are has not been told; when orphaning, not since the deletion was seen to be so.
	undiscovered bool
}

// step is what is to be done about an owner next.
type step string

const (
	nothing  step = "nothing"  // it is not ours to let go, or no longer
	collect  step = "collect"  // have its dependents removed
	unblock  step = "unblock"  // break the ring
	list     step = "list"     // look at the types that may hold a dependent
	hold     step = "hold"     // wait
	orphan   step = "orphan"   // take the references to it away
	finalize step = "finalize" // take the finalizer away
)

// reason is why an owner is held; also a label of metrics.
type reason string

const (
	byFinalizers reason = "finalizer"   // dependents are being deleted, and something holds them
	byDependents reason = "dependents"  // dependents wait for dependents of their own
	byIdle       reason = "not_removed" // dependents are not being deleted yet
	byBlindness  reason = "unseen_type"
	byRefs       reason = "references"
	byRejection  reason = "rejected" // a request was, by a policy or for lack of a right
	byFailure    reason = "failed"   // a request about it does, and is tried again
	byLine       reason = "busy"     // a request waits for its turn; also of objects
)

// next is a step with why it is this one.
type next struct {
	do    step
	why   reason
	after time.Duration // when to look again if no event comes; 0: there is no need
}

// finish says how an owner comes to its end. An orphaning one goes only when everything has been looked at: what is missed would be deleted
// later, which is what the user did not want. One that waits for its dependents goes in spite of types that cannot be looked at.
func finish(o ownerSight) next {
	switch marks := o.owner.marks; {
	case !marks.finishing(), o.owner.uid != o.meant:
		return next{do: nothing}
	case marks.has(orphaning):
		return finishOrphaning(o)
	}
	return finishForeground(o)
}

func finishOrphaning(o ownerSight) next {
	switch {
	case o.undiscovered:
		return undiscoveredFor(o.waited)
	case !o.looked:
		return next{do: list}
	case o.refs > 0:
		return next{do: orphan, why: byRefs, after: recheck(o.waited)}
	case o.blind > 0:
		return next{do: hold, why: byBlindness, after: orphansRecheck(o)}
	}
	return next{do: finalize}
}

func finishForeground(o ownerSight) next {
	switch {
	case o.idle > 0:
		return next{do: collect, why: byIdle, after: recheck(o.waited)}
	case o.blocking > o.waiting:
		return next{do: hold, why: byFinalizers, after: recheck(o.waited)}
	case o.blocking > 0 && o.still < ringPatience:
		return next{do: hold, why: byDependents, after: ringPatience - o.still}
	case o.blocking > 0 && o.ring:
		return next{do: unblock, why: byDependents, after: recheck(o.waited)}
	case o.blocking > 0:
		return next{do: hold, why: byDependents, after: recheck(o.waited)}
	case o.undiscovered: // not even where to look is known, so there is no end to its patience
		return undiscoveredFor(o.waited)
	case o.blind > 0:
		return next{do: hold, why: byBlindness, after: ringPatience}
	}
	return next{do: finalize}
}

func undiscoveredFor(waited time.Duration) next {
	return next{do: hold, why: byBlindness, after: min(max(waited, minDiscovery), minPause)}
}

// afterRejection is what to do about an owner that has waited for so long when a request on its account was rejected.
func afterRejection(waited time.Duration) next {
	return next{do: hold, why: byRejection, after: recheck(waited)}
}

// orphansRecheck is when to look again at an owner that waits for types that cannot be looked at: as soon as one may answer, but seldom if it has waited for
// long, as thousands may.
func orphansRecheck(o ownerSight) time.Duration {
	if o.again == 0 {
		return minRecheck
	}
	return min(max(o.again, o.waited/8), minRecheck)
}

// recheck is when to look again at an owner that has waited for so long.
func recheck(waited time.Duration) time.Duration { return min(max(waited, minRecheck), maxRecheck) }
