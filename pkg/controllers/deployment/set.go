package deployment

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// set is a ReplicaSet of a Deployment, with what the cache shows of its pods.
type set struct {
	rs      *appsv1.ReplicaSet // not to be changed
	current bool               // its template is that of the Deployment
	spoiled bool               // something changed its template when we created it
	pods    podCounts
}

// podCounts counts the pods that a ReplicaSet controls, those that have neither failed nor succeeded.
type podCounts struct {
	unfinished int // all of them, the terminating ones too
	ready      int // not terminating
	available  int // of the ready ones, those that have been so for the minReadySeconds of the ReplicaSet
}

// size is how many pods the ReplicaSet is asked for.
func (s set) size() int { return orOne(s.rs.Spec.Replicas) }

func (s set) active() bool { return s.size() > 0 }

// available is how many of its pods can be relied on; never more than apparent. Where pods are ready before they are available, a pod that is to go may be
// an available one though others are not: until the status shows the last reduction nobody knows how many are left.
func (s set) available() int {
	if s.rs.Spec.MinReadySeconds > 0 && !s.caughtUp() {
		return 0
	}
	return s.apparent()
}

// availableOf is what available will be when the ReplicaSet has been reduced to a size.
func (s set) availableOf(size int) int {
	if s.rs.Spec.MinReadySeconds > 0 {
		return 0
	}
	return min(s.available(), size)
}

// apparent is how many of its pods are available as far as can be seen. The status may be old: what the size has given up is gone, whatever the
// status says, and the cache of pods learns of a pod that became unready before the status does. It never makes it more.
func (s set) apparent() int {
	return max(0, min(s.told(), s.pods.available))
}

// told is how many of its pods its status and its size agree on. The cache of pods, which may be behind, has no part in it: what makes a plan bolder
// must not be that less is known.
func (s set) told() int { return max(0, min(s.size(), int(s.rs.Status.AvailableReplicas))) }

// lowered reports whether the cache of pods makes that less than the status does.
func (s set) lowered() bool {
	return s.apparent() < s.told()
}

// expendable is how many pods go before any ready one does when the ReplicaSet shrinks.
func (s set) expendable() int {
	return max(0, s.size()-max(int(s.rs.Status.ReadyReplicas), s.pods.ready))
}

// caughtUp reports whether the status shows the last reduction. A ReplicaSet of the first generation has never been reduced.
func (s set) caughtUp() bool {
	seen := s.rs.Status.ObservedGeneration == s.rs.Generation || s.rs.Generation <= 1
	return seen && int(s.rs.Status.Replicas) <= s.size()
}

// gone reports whether the ReplicaSet wants no pods, has none, and its controller will make none for an earlier size.
func (s set) gone() bool {
	status := s.rs.Status
	return s.size() == 0 && status.ObservedGeneration == s.rs.Generation && status.Replicas == 0 &&
		(status.TerminatingReplicas == nil || *status.TerminatingReplicas == 0) && s.pods.unfinished == 0
}

// compareAge orders the older ReplicaSet first. It is a total order: names in a namespace differ.
func compareAge(a, b set) int {
	return cmp.Or(a.rs.CreationTimestamp.Compare(b.rs.CreationTimestamp.Time), cmp.Compare(a.rs.Name, b.rs.Name))
}

// divide returns the ReplicaSets oldest first: the one of the present template, which is the oldest if there are several, and all others. found
// is false if there is none.
func divide(sets []set) (next set, found bool, old []set) {
	old = slices.SortedFunc(slices.Values(sets), compareAge)
	i := slices.IndexFunc(old, func(s set) bool { return s.current })
	if i < 0 {
		return set{}, false, old
	}
	next = old[i]
	return next, true, slices.Delete(old, i, i+1)
}
