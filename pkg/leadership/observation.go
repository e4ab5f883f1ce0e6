package leadership

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
)

// Cause says how the lease became free for a term.
type Cause string

// The causes of a takeover.
const (
	CauseInitial    Cause = "initial"    // there was no lease, or election is off
	CauseReleased   Cause = "released"   // the holder gave it away
	CauseExpired    Cause = "expired"    // the holder let it expire
	CauseReacquired Cause = "reacquired" // it was still ours: a term ended and nobody else came
)

// observation is what this process knows of the Lease, and since when by its own clock. It is a value:
// each new sight gives a new one.
type observation struct {
	known  bool // false: nothing heard yet, and the rest means nothing
	exists bool
	// record is the last one seen. It outlives the Lease: deleting a Lease does not stop its holder.
	record          resourcelock.LeaderElectionRecord
	renewedByHolder bool          // its holder has written it: the renew time is another than that of the holder's record before
	lastDuration    time.Duration // of the last record that named a holder; 0 if none was seen
	version         string        // resourceVersion of the newest state seen
	since           time.Time     // when the record was first seen, or when the Lease was first found missing
}

// saw adds the sight of a Lease by watch. One older than what is known changes nothing, so a late watch cannot
// undo what a request has shown.
func (o observation) withEvent(lease *coordinationv1.Lease, now time.Time) observation {
	if o.known && o.version != "" && rv.AtLeast(o.version, lease.ResourceVersion) {
		return o
	}
	return o.withResponse(lease, now)
}

// read adds the answer to a request of ours. That is the Lease as it is in etcd, so it counts even if its version is lower than
// what is known: then the cluster was restored from a backup, and all versions to come will be lower for a while.
func (o observation) withResponse(lease *coordinationv1.Lease, now time.Time) observation {
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if !o.known || !o.exists || !sameRecord(o.record, *record) {
		o.since = now
		o.renewedByHolder = o.known && record.HolderIdentity == o.record.HolderIdentity && !sameTime(record.RenewTime, o.record.RenewTime)
	}
	if record.HolderIdentity != "" {
		o.lastDuration = time.Duration(record.LeaseDurationSeconds) * time.Second
	}
	o.known, o.exists, o.record, o.version = true, true, *record, lease.ResourceVersion
	return o
}

// gone adds that there is no Lease.
func (o observation) withoutLease(now time.Time) observation {
	if !o.known {
		o.since = now
	}
	o.known, o.exists = true, false
	return o
}

// free says from which moment identity may try to take the lease, and why then. Only meaningful if known.
// A missing Lease whose holder has not let it expire is not free: that holder still works, and puts it
// back at its next renewal. So does a holder whose name somebody else has taken out of the record, until it
// sees that. shortest is how long a holder is waited for at least: a record that says less, or nothing, and was
// not written by its holder, was written by hand, and its holder may not know yet.
func (o observation) freeAt(identity string, shortest time.Duration) (time.Time, Cause) {
	switch {
	case o.record.HolderIdentity == identity:
		return o.since, CauseReacquired
	case o.record.HolderIdentity == "" && o.lastDuration == 0 && (!o.exists || isEmpty(o.record)):
		return o.since, CauseInitial
	case o.record.HolderIdentity == "" && isReleased(o.record):
		if !o.exists {
			return o.since, CauseInitial
		}
		return o.since, CauseReleased
	case o.record.HolderIdentity == "":
		return o.since.Add(max(shortest, o.lastDuration)), CauseExpired
	}
	duration := time.Duration(o.record.LeaseDurationSeconds) * time.Second
	if !o.renewedByHolder {
		duration = max(duration, shortest)
	}
	return o.since.Add(duration), CauseExpired
}

// released says whether a record without a holder has the form in which a holder gives a lease away, client-go's and ours: for a second,
// from a moment that is the time of both. What somebody else empties keeps the times of its last renewal.
func isReleased(record resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == 1 && sameTime(record.AcquireTime, record.RenewTime)
}

// unwritten says whether a record is as a Lease has it that was only created, so that managers need no right to create it.
func isEmpty(record resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == 0 && record.LeaderTransitions == 0 && record.AcquireTime.IsZero() && record.RenewTime.IsZero()
}

// lastTry is the last attempt of a standby to take the lease. The zero value is none.
type lastAttempt struct {
	at      time.Time     // when it ended
	version string        // of the Lease it judged
	pause   time.Duration // before another one on the same version
}

// nextTry says when a standby should look at the lease again: at once if it has not yet; at the moment it
// becomes free; after the pause if it was free already and the try failed; and in any case poll after its
// last look of its own, for the watch may be broken, or late, which what it delivers does not show.
func nextAttempt(o observation, identity string, shortest time.Duration, last lastAttempt, poll time.Duration) time.Time {
	retry := last.at.Add(last.pause)
	if !o.known || last.at.IsZero() {
		return retry
	}
	free, _ := o.freeAt(identity, shortest)
	if o.version == last.version && !free.After(last.at) {
		free = retry
	}
	return timing.Earlier(free, timing.Later(last.at.Add(poll), retry))
}

// watchLag compares what the watch delivers with what our own requests show.
type watchLag struct {
	version string    // newest the watch delivered, "" if it never did
	direct  string    // newest a request of ours showed
	ahead   int       // versions seen directly since the watch last brought something new
	since   time.Time // when the first of them was seen; meaningful if ahead > 0
}

// sawDirect adds a version one of our requests showed.
func (w watchLag) sawDirect(version string, now time.Time) watchLag {
	if version == w.direct || w.version == "" || rv.AtLeast(w.version, version) {
		return w
	}
	if w.ahead == 0 {
		w.since = now
	}
	w.direct, w.ahead = version, w.ahead+1
	return w
}

// sawWatched adds a version the watch delivered. Anything new is progress, even if it is late.
func (w watchLag) sawWatched(version string) watchLag {
	if w.version == "" || rv.MayBeNewer(version, w.version) {
		w.version, w.ahead = version, 0
	}
	return w
}

// sameRecord compares what the holder wrote, to the microsecond a Lease keeps.
func sameRecord(a, b resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity &&
		a.LeaseDurationSeconds == b.LeaseDurationSeconds &&
		a.LeaderTransitions == b.LeaderTransitions &&
		sameTime(a.AcquireTime, b.AcquireTime) && sameTime(a.RenewTime, b.RenewTime)
}

func sameTime(a, b metav1.Time) bool { return a.UnixMicro() == b.UnixMicro() }
