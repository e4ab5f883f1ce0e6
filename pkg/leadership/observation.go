package leadership

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"minikcm/internal/rv"
	"minikcm/internal/timing"
)

// Cause is the way in which the lease became free for a term.
type Cause string

// The causes of a takeover.
const (
	CauseInitial    Cause = "initial"    // there was no lease, or election is off
	CauseReleased   Cause = "released"   // the holder released the lease
	CauseExpired    Cause = "expired"    // the holder did not renew the lease
	CauseReacquired Cause = "reacquired" // this process still was the holder when its term ended
)

// observation is the knowledge of this process about the Lease, with times of the local clock. It is a
// value: each event or response gives a new observation.
type observation struct {
	known  bool // false: no other field is meaningful
	exists bool
	// record is the last record of the Lease. It outlives the Lease: the deletion of a Lease does not
	// stop its holder.
	record          resourcelock.LeaderElectionRecord
	renewedByHolder bool          // the renew time differs from that in the previous record of the same holder
	lastDuration    time.Duration // in the last record with a holder; 0 for none
	version         string        // newest resourceVersion
	since           time.Time     // first observation of record, or of the missing Lease
}

// withEvent adds a watch event. An event older than the observation changes nothing: a delayed watch
// must not undo a response.
func (o observation) withEvent(lease *coordinationv1.Lease, now time.Time) observation {
	if o.known && o.version != "" && rv.AtLeast(o.version, lease.ResourceVersion) {
		return o
	}
	return o.withResponse(lease, now)
}

// withResponse adds the response to an own request. Responses come from etcd, so they count even if
// the version is lower than before: after a restore from a backup all versions are lower for a while.
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

// withoutLease adds a deletion or a GET that found no Lease.
func (o observation) withoutLease(now time.Time) observation {
	if !o.known {
		o.since = now
	}
	o.known, o.exists = true, false
	return o
}

// freeAt returns the moment from which identity may try to acquire the lease. It requires a known
// observation.
//
// A deleted Lease is not free before its last record expires: the holder still works, and creates the
// Lease again at its next renewal. The same is true for a record whose holder another process has
// removed. minDuration is the minimal duration of a record that its holder has not written: a shorter
// duration was written by hand, and the holder may not have noticed.
func (o observation) freeAt(identity string, minDuration time.Duration) (time.Time, Cause) {
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
		return o.since.Add(max(minDuration, o.lastDuration)), CauseExpired
	}
	duration := time.Duration(o.record.LeaseDurationSeconds) * time.Second
	if !o.renewedByHolder {
		duration = max(duration, minDuration)
	}
	return o.since.Add(duration), CauseExpired
}

// isReleased reports whether a record without a holder was written by a holder, client-go's or this
// package's: the duration is a second and both times are the same. A record whose holder another
// process removed keeps the times of the last renewal.
func isReleased(record resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == 1 && sameTime(record.AcquireTime, record.RenewTime)
}

// isEmpty reports whether a Lease was only created, as by an administrator who does not grant the
// right to create Leases.
func isEmpty(record resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == 0 && record.LeaderTransitions == 0 && record.AcquireTime.IsZero() && record.RenewTime.IsZero()
}

// lastAttempt is the last attempt of a standby to acquire the lease. The zero value is none.
type lastAttempt struct {
	at      time.Time     // end of the attempt
	version string        // of the Lease on which the attempt was decided
	pause   time.Duration // before the next attempt on the same version
}

// nextAttempt returns the time of the next attempt of a standby: at once before the first attempt,
// when the lease becomes free, after the pause if the last attempt failed on a free lease, and at the
// latest poll after the last attempt, because the watch may be broken or late.
func nextAttempt(o observation, identity string, minDuration time.Duration, last lastAttempt, poll time.Duration) time.Time {
	retry := last.at.Add(last.pause)
	if !o.known || last.at.IsZero() {
		return retry
	}
	free, _ := o.freeAt(identity, minDuration)
	if o.version == last.version && !free.After(last.at) {
		free = retry
	}
	return timing.Earlier(free, timing.Later(last.at.Add(poll), retry))
}

// sameRecord compares two records with the precision of a Lease, a microsecond.
func sameRecord(a, b resourcelock.LeaderElectionRecord) bool {
	return a.HolderIdentity == b.HolderIdentity &&
		a.LeaseDurationSeconds == b.LeaseDurationSeconds &&
		a.LeaderTransitions == b.LeaderTransitions &&
		sameTime(a.AcquireTime, b.AcquireTime) && sameTime(a.RenewTime, b.RenewTime)
}

func sameTime(a, b metav1.Time) bool { return a.UnixMicro() == b.UnixMicro() }
