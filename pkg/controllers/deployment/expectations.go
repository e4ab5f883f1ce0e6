package deployment

import (
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/pkg/controller"
	"minikcm/pkg/outcome"
)

// ledger is what this process wrote for one Deployment in this term, as far as the caches may not show it or the API server has not answered, and
// what it has found out that is not to be found out again.
type expectations struct {
	barrier         controller.ConsistencyBarrier
	cacheIncomplete bool // the cache has not led to a ReplicaSet of ours that it shows: the next decision is made on a live read

	creates        controller.Creates          // ReplicaSets that are to be created, and may have been
	createSizes    map[string]int              // of those, by name
	unknownResizes map[types.UID]unknownResize // by ReplicaSet
	reliableStatus map[types.UID]struct{}      // ReplicaSets whose status has shown their last size in this term, and that were not raised too early since
	resizedAt      map[types.UID]time.Time     // when a size was last changed and that was answered, by ReplicaSet

	templates templateMemo // which ReplicaSets have the present one
}

// unansweredResize is a change of a ReplicaSet that was sent and not answered. If it is sent again, then as it was: the size is changed once at most,
// whichever of the two arrives.
type unknownResize struct {
	change     change
	generation int64     // of the Deployment that wanted it
	until      time.Time // by then it has been carried out or never will be
}

func newExpectations() expectations {
	return expectations{createSizes: map[string]int{}, unknownResizes: map[types.UID]unknownResize{}, reliableStatus: map[types.UID]struct{}{}, resizedAt: map[types.UID]time.Time{}}
}

// doubts reports whether the status of a ReplicaSet may count pods that are about to go, though its size allows for them: it was raised before the status showed
// the last reduction, or may have been before this term.
func (l *expectations) statusUnreliable(rs *appsv1.ReplicaSet) bool {
	_, trusted := l.reliableStatus[rs.UID]
	return !trusted
}

// observe ends the doubts about a ReplicaSet whose status shows its size: our ReplicaSet controller looks at another size only when it sees what it deleted
// for the last.
func (l *expectations) recordStatus(rs *appsv1.ReplicaSet) {
	_, unanswered := l.unknownResizes[rs.UID]
	if shown := rs.Status.ObservedGeneration >= rs.Generation || rs.Generation <= 1; shown && !unanswered { // the first has reduced nothing
		l.reliableStatus[rs.UID] = struct{}{}
	}
}

// begin notes that a ReplicaSet is about to be created, and returns what was known of its name before.
func (l *expectations) startCreate(name string, size int, now time.Time) controller.Create {
	l.createSizes[name] = max(l.createSizes[name], size)
	before := l.creates.Start(name)
	l.creates.Retry(controller.Create{Name: name, Unknown: true, Until: now.Add(outcome.MaxCompletionDelay)})
	return before
}

// end forgets a create whose fate is known.
func (l *expectations) endCreate(name string) {
	l.creates.Done(name)
	delete(l.createSizes, name)
}

// resolve finds out what became of creates from the ReplicaSets that are there, and forgets those that can no longer be carried out. byName finds a ReplicaSet of the namespace by its name, with any owner.
func (l *expectations) resolveCreates(sets []*appsv1.ReplicaSet, byName func(name string) (*appsv1.ReplicaSet, bool), now time.Time) {
	l.creates.Resolve(func(name string) (found, ours bool) {
		_, found = byName(name)
		return found, false
	})
	l.creates = slices.DeleteFunc(l.creates, func(c controller.Create) bool { return !c.Unknown || !now.Before(c.Until) })
	for name := range l.createSizes {
		if !slices.ContainsFunc(l.creates, func(c controller.Create) bool { return c.Name == name }) {
			delete(l.createSizes, name)
		}
	}
	gone := func(uid types.UID) bool {
		return !slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.UID == uid })
	}
	maps.DeleteFunc(l.reliableStatus, func(uid types.UID, _ struct{}) bool { return gone(uid) })
	for uid, at := range l.resizedAt {
		if gone(uid) || !now.Before(at.Add(maxStatusInterval)) {
			delete(l.resizedAt, uid)
		}
	}
}

// reserved are the pods of ReplicaSets that may come to exist: for the present template, whose name is given, and for others.
func (l *expectations) pendingPods(name string) (present, others int) {
	for _, c := range l.creates {
		if c.Name == name {
			present += l.createSizes[c.Name]
		} else {
			others += l.createSizes[c.Name]
		}
	}
	return present, others
}

// decided returns when the fate of the first unanswered create is known, if nobody sees the ReplicaSet before; 0: there is none.
func (l *expectations) nextDeadline(now time.Time) (in time.Duration) {
	for _, until := range l.creates.Unanswered() {
		in = controller.MinPositive(in, max(until.Sub(now), controller.Immediately))
	}
	return in
}
