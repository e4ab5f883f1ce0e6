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
type ledger struct {
	barrier controller.ConsistencyBarrier
	doubted bool // the cache has not led to a ReplicaSet of ours that it shows: the next decision is made on a live read

	creates   controller.Creates             // ReplicaSets that are to be created, and may have been
	sizes     map[string]int                 // of those, by name
	resizes   map[types.UID]unansweredResize // by ReplicaSet
	trusted   map[types.UID]struct{}         // ReplicaSets whose status has shown their last size in this term, and that were not raised too early since
	resizedAt map[types.UID]time.Time        // when a size was last changed and that was answered, by ReplicaSet

	templates templates // which ReplicaSets have the present one
}

// unansweredResize is a change of a ReplicaSet that was sent and not answered. If it is sent again, then as it was: the size is changed once at most,
// whichever of the two arrives.
type unansweredResize struct {
	change     change
	generation int64     // of the Deployment that wanted it
	until      time.Time // by then it has been carried out or never will be
}

func newLedger() ledger {
	return ledger{sizes: map[string]int{}, resizes: map[types.UID]unansweredResize{}, trusted: map[types.UID]struct{}{}, resizedAt: map[types.UID]time.Time{}}
}

// doubts reports whether the status of a ReplicaSet may count pods that are about to go, though its size allows for them: it was raised before the status showed
// the last reduction, or may have been before this term.
func (l *ledger) doubts(rs *appsv1.ReplicaSet) bool {
	_, trusted := l.trusted[rs.UID]
	return !trusted
}

// observe ends the doubts about a ReplicaSet whose status shows its size: our ReplicaSet controller looks at another size only when it sees what it deleted
// for the last.
func (l *ledger) observe(rs *appsv1.ReplicaSet) {
	_, unanswered := l.resizes[rs.UID]
	if shown := rs.Status.ObservedGeneration >= rs.Generation || rs.Generation <= 1; shown && !unanswered { // the first has reduced nothing
		l.trusted[rs.UID] = struct{}{}
	}
}

// begin notes that a ReplicaSet is about to be created, and returns what was known of its name before.
func (l *ledger) begin(name string, size int, now time.Time) controller.Create {
	l.sizes[name] = max(l.sizes[name], size)
	before := l.creates.Start(name)
	l.creates.Retry(controller.Create{Name: name, Unknown: true, Until: now.Add(outcome.MaxCompletionDelay)})
	return before
}

// end forgets a create whose fate is known.
func (l *ledger) end(name string) {
	l.creates.Done(name)
	delete(l.sizes, name)
}

// resolve finds out what became of creates from the ReplicaSets that are there, and forgets those that can no longer be carried out. byName finds a ReplicaSet of the namespace by its name, with any owner.
func (l *ledger) resolve(sets []*appsv1.ReplicaSet, byName func(name string) (*appsv1.ReplicaSet, bool), now time.Time) {
	l.creates.Resolve(func(name string) (found, ours bool) {
		_, found = byName(name)
		return found, false
	})
	l.creates = slices.DeleteFunc(l.creates, func(c controller.Create) bool { return !c.Unknown || !now.Before(c.Until) })
	for name := range l.sizes {
		if !slices.ContainsFunc(l.creates, func(c controller.Create) bool { return c.Name == name }) {
			delete(l.sizes, name)
		}
	}
	gone := func(uid types.UID) bool {
		return !slices.ContainsFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.UID == uid })
	}
	maps.DeleteFunc(l.trusted, func(uid types.UID, _ struct{}) bool { return gone(uid) })
	for uid, at := range l.resizedAt {
		if gone(uid) || !now.Before(at.Add(longestPace)) {
			delete(l.resizedAt, uid)
		}
	}
}

// reserved are the pods of ReplicaSets that may come to exist: for the present template, whose name is given, and for others.
func (l *ledger) reserved(name string) (present, others int) {
	for _, c := range l.creates {
		if c.Name == name {
			present += l.sizes[c.Name]
		} else {
			others += l.sizes[c.Name]
		}
	}
	return present, others
}

// decided returns when the fate of the first unanswered create is known, if nobody sees the ReplicaSet before; 0: there is none.
func (l *ledger) decided(now time.Time) (in time.Duration) {
	for _, until := range l.creates.Unanswered() {
		in = controller.MinPositive(in, max(until.Sub(now), controller.Immediately))
	}
	return in
}
