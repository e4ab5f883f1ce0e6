package garbagecollector

import (
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/outcome"
)

const (
	// readValidFor is the time for which a live read of an owner is valid for later decisions.
	readValidFor = 10 * time.Second
	// confirmAfter is the time after which a second 404, or a watch without the owner, confirms a 404.
	confirmAfter = 2 * time.Second
	// ownerListTimeout is the time for which a type without a list delays the dependents of its objects.
	ownerListTimeout = 10 * time.Second
	// Back-off after failed reads of an owner or of a type.
	minBackoff = time.Second
	maxBackoff = time.Minute
	// An owner whose deletion no watch reports is read every 5 to 6 minutes.
	pollInterval = 5 * time.Minute
	pollJitter   = time.Minute
)

// ownerState is the state of the owner that a reference names. Upstream's names are solid, dangling and
// waitingForDependentsDeletion.
type ownerState uint8

const (
	unknown              ownerState = iota
	solid                           // the owner exists: its dependents stay
	waitingForDependents            // the owner waits for the deletion of its dependents
	absent                          // the owner does not exist, and a UID is never assigned twice
)

// readResult classifies the response to a live read of an owner. The last three are labels of metrics.
type readResult string

const (
	unread      readResult = ""
	found       readResult = "found"
	missing     readResult = "missing"     // a 404 that names the object
	unnamed404  readResult = "unnamed_404" // a 404 of a server that may not know the type
	refused     readResult = "refused"
	unavailable readResult = "unable" // other errors, timeouts and objects without UID
)

// classifyRead ignores m if err is not nil.
func classifyRead(m metav1.Object, err error, name string) readResult {
	var status apierrors.APIStatus
	switch {
	case err == nil && m.GetUID() == "":
		return unavailable
	case err == nil:
		return found
	case !errors.As(err, &status):
		return unavailable
	}
	switch code := status.Status().Code; {
	case outcome.IsNotFound(err, name):
		return missing
	case code == http.StatusNotFound || apierrors.IsNotFound(err):
		return unnamed404
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusMethodNotAllowed, code == http.StatusNotAcceptable:
		return refused
	}
	return unavailable
}

// liveRead is the latest live read of an owner by name. References with any UID share the read.
type liveRead struct {
	result         readResult
	uid            types.UID // of the object that was found
	waiting        bool      // the object that was found waits for its dependents
	sent, received time.Time
	failures       int // consecutive reads without proof
	// previousMissing and latestMissing are the times of two missing results, at least confirmAfter apart, without a
	// found result between them or since. A zero time means no such result.
	previousMissing, latestMissing time.Time
}

// next returns the record after a further read. Reads of one owner follow each other.
func (l liveRead) next(result readResult, m metav1.Object, sent, received time.Time) liveRead {
	next := liveRead{result: result, sent: sent, received: received}
	switch result {
	case found:
		next.uid, next.waiting = m.GetUID(), marksOf(m).waiting()
	case missing:
		next.previousMissing, next.latestMissing = l.previousMissing, l.latestMissing
		if l.latestMissing.IsZero() || sent.Sub(l.latestMissing) >= confirmAfter {
			next.previousMissing, next.latestMissing = l.latestMissing, sent
		}
	default:
		next.previousMissing, next.latestMissing, next.failures = l.previousMissing, l.latestMissing, l.failures+1
	}
	return next
}

// evidence is the knowledge about the owner that one reference names.
type evidence struct {
	ownerObservation           // from the graph
	uid              types.UID // in the reference
	problem          problem   // the reason why the owner cannot be read
	discovered       time.Time // time of the latest discovery
	// listingFor is the time for which the owner's type waits for a list, or 0 after that.
	listingFor time.Duration
	// watchedFor is the age of a current watch of the owner's type. For a type with an informer it is the time since
	// the first list: package freshness ends the term if such a cache stays behind. It is 0 for aggregated API servers.
	watchedFor time.Duration
	live       liveRead
	syncBegun  time.Time
}

// classification is the state of one owner, and the next step if the state is unknown or may change without an event.
type classification struct {
	state ownerState
	read  bool          // a live read is necessary
	after time.Duration // 0: no recheck
	cause string        // why the state is unknown; a label of metrics
}

// classifyOwner returns the state of an owner. A watch that shows the owner is enough to keep a dependent. Absence
// takes one of these proofs. The numbers are those of the cases in the function:
//
//	case                              proof                                                   source
//	2. name with / or %, . or ..      a local type has no such names                          kindIndex.resolve
//	2. group without the kind         deletion event, then a discovery of the whole group     typeStore.Delete
//	4. 404 that names the owner       deletion event,                                         typeStore.Delete
//	                                  or a watch that lacks the owner for confirmAfter,       knownTypes.setPhase
//	                                  or an earlier such 404, confirmAfter before             liveRead.next
//	5. another object of the name     its UID: a UID is never assigned twice                  ownerReader.readOwner
//	     of a type without watch      its UID, and a deletion event, or confirmAfter between
//	                                  the reference and the read                              ownerReader.readOwner
//
// The writer of a reference had observed the owner. So a read counts if it was sent after the reference was first seen,
// and if it is not older than readValidFor or than the sync: hundreds of reads may take longer. A watch counts from the
// same moment. Watches and deletion events count for local types and the kind in the reference: aggregated API servers
// may return earlier objects from a cache, and UIDs of other objects.
func classifyOwner(e evidence, now time.Time) classification {
	age, backoff := now.Sub(e.live.received), min(minBackoff<<min(max(e.live.failures-1, 0), 10), maxBackoff)
	// unwatched: no watch would report the deletion of the owner. Late deletion of its dependents is then acceptable.
	unwatched := e.status == refVirtual && e.deletedAt.IsZero() && e.watchedFor == 0
	missingTwice := !e.live.previousMissing.IsZero() && !e.live.previousMissing.Before(e.refSeen)
	unseenFor := min(e.watchedFor, now.Sub(e.refSeen)) // time for which the watch would have shown the owner
	if e.status == refWaiting {                        // the watch does show the owner
		unseenFor = 0
	}
	confirm := func(wait time.Duration) classification {
		if wait > 0 {
			return classification{after: wait, cause: "unconfirmed"}
		}
		return classification{read: true}
	}
	switch {
	// 1. The graph shows the owner, or the reference has no UID.
	case e.status == refValid:
		return classification{state: solid}
	case e.uid == "": // accepted by other servers; every object would differ
		return classification{cause: string(unparsableVersion)}
	// 2. The owner cannot be read.
	case e.problem == impossibleName,
		e.problem == unknownKind && !e.deletedAt.IsZero() && e.discovered.After(e.deletedAt):
		return classification{state: absent}
	case e.problem != fine:
		return classification{cause: string(e.problem)} // discovery requeues the dependent
	// 3. A read is necessary, has to wait, or is still valid.
	case e.status == refVirtual && e.deletedAt.IsZero() && e.listingFor > 0 && e.listingFor < ownerListTimeout:
		return classification{after: ownerListTimeout - e.listingFor, cause: "syncing"}
	case e.live.failures > 0 && age < backoff:
		return classification{after: backoff - age, cause: string(e.live.result)}
	case e.live.result == unread, e.live.failures > 0, e.live.sent.Before(e.refSeen):
		return classification{read: true}
	case unwatched && e.live.result == found && e.live.uid == e.uid && !e.live.waiting &&
		!e.live.sent.Before(e.anyDeletedAt) && age < pollInterval:
		return classification{state: solid, after: pollInterval - age}
	case age > readValidFor && e.live.sent.Before(e.syncBegun):
		return classification{read: true}
	// 4. The read has returned a 404 that names the owner.
	case e.live.result == missing && (!e.deletedAt.IsZero() || unseenFor >= confirmAfter || missingTwice):
		return classification{state: absent}
	case e.live.result == missing: // a second fact is needed
		first := e.live.latestMissing
		if first.Before(e.refSeen) {
			first = e.live.sent
		}
		return confirm(min(confirmAfter-unseenFor, first.Add(confirmAfter).Sub(now)))
	// 5. The read has found another object of the name.
	case e.live.uid != e.uid && e.watchedFor == 0 && e.deletedAt.IsZero() && e.live.sent.Sub(e.refSeen) < confirmAfter:
		return confirm(e.refSeen.Add(confirmAfter).Sub(now))
	case e.live.uid != e.uid:
		return classification{state: absent}
	// 6. The read has found the owner.
	case (e.live.waiting || e.status == refWaiting || !e.anyDeletedAt.IsZero()) && e.live.sent.Before(e.syncBegun):
		// The user may turn a foreground deletion into orphaning, so each sync reads a waiting owner. An owner
		// that was found may have gone since if a watch has reported its deletion.
		return classification{read: true}
	case e.live.waiting:
		return classification{state: waitingForDependents}
	case e.status == refVirtual && e.watchedFor > 0 && e.deletedAt.IsZero():
		// Either the event is late, or the owner has gone since the read and no event will come.
		return classification{state: solid, after: min(max(unseenFor, readValidFor), pollInterval)}
	case e.status == refVirtual:
		return classification{state: solid, after: pollInterval}
	}
	return classification{state: solid}
}

// action is the change that a decision about an object demands.
type action string

const (
	keep    action = "keep"
	await   action = "wait"    // the state of an owner is unknown
	release action = "release" // remove references to owners that are absent or wait for dependents
	remove  action = "remove"  // delete the object
)

// decision is an action with its arguments.
type decision struct {
	action action
	refs   []int                      // of release: positions of the references
	policy metav1.DeletionPropagation // of remove
}

// decide returns the decision about an object by the states of its owners. One solid owner keeps the object. One
// unknown owner keeps the object from being deleted.
func decide(m marks, owners []ownerState, hasDependents bool) decision {
	has := func(state ownerState) bool { return slices.Contains(owners, state) }
	var removable []int
	for n, state := range owners {
		if state == absent || state == waitingForDependents {
			removable = append(removable, n)
		}
	}
	switch {
	case m.has(terminating), len(owners) == 0:
		return decision{action: keep}
	case has(solid) && len(removable) > 0:
		return decision{action: release, refs: removable}
	case has(solid):
		return decision{action: keep}
	case has(unknown):
		return decision{action: await}
	case has(waitingForDependents) && hasDependents: // the owner goes after all levels of dependents
		return decision{action: remove, policy: metav1.DeletePropagationForeground}
	case m.has(orphaning):
		return decision{action: remove, policy: metav1.DeletePropagationOrphan}
	case m.has(foreground):
		return decision{action: remove, policy: metav1.DeletePropagationForeground}
	}
	return decision{action: remove, policy: metav1.DeletePropagationBackground}
}
