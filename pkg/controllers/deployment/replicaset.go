package deployment

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// set is a ReplicaSet of a Deployment, with what the cache shows of its pods.
type replicaSet struct {
	rs               *appsv1.ReplicaSet // not to be changed
	current          bool               // its template is that of the Deployment
	resizedAt        time.Time          // when we last changed its size; zero: not lately, or not known
	backoff          time.Duration      // how long changes of it are still held back; 0: not at all
	statusUnreliable bool               // its status may count pods that are about to go; see ledger.doubts
	pods             podCounts
}

// podCounts counts the pods that a ReplicaSet controls, those that have neither failed nor succeeded.
type podCounts struct {
	unfinished int // all of them, the terminating ones too
	ready      int // not terminating
	available  int // of the ready ones, those that have been so for the minReadySeconds of the ReplicaSet
}

// size is how many pods the ReplicaSet is asked for.
func (s replicaSet) size() int { return replicasOrOne(s.rs.Spec.Replicas) }

func (s replicaSet) isActive() bool { return s.size() > 0 }

// empty reports whether the ReplicaSet has no pods but such as are ending, and its controller knows that it is to have none.
func (s replicaSet) isEmpty() bool {
	return !s.isActive() && s.rs.Status.Replicas == 0 && s.rs.Status.ObservedGeneration >= s.rs.Generation
}

// How many pods can be relied on, or need not be, is told by different witnesses. The size is what there will be: what it has given up is gone. The status
// is the ReplicaSet controller's, and may be old. The cache of pods learns sooner than the status that a pod became unready, but may be behind it, too. Each
// can only lower what may be relied on.
//
//	            size   status      cache of pods   caughtUp
//	told        yes    available   -               -                    what the status says, and no more than will be there
//	apparent    yes    available   available       -                    what both can see
//	possible    yes    available   available       -                    what either can see: only to doubt that pods are missing
//	available   yes    available   available       with minReadySeconds what can be relied on; of a doubtful one nothing
//	expendable  yes    ready       ready           -                    what goes before any ready pod when the ReplicaSet shrinks

func (s replicaSet) statusAvailable() int {
	return max(0, min(s.size(), int(s.rs.Status.AvailableReplicas)))
}

func (s replicaSet) availableInBoth() int { return min(s.statusAvailable(), max(0, s.pods.available)) }

func (s replicaSet) availableInEither() int {
	return max(s.statusAvailable(), min(s.size(), s.pods.available))
}

// available is 0 of a doubtful ReplicaSet, see ledger.doubts. It is also 0 where pods are ready before they are available and the status does not show the last
// reduction: a pod that is to go may be an available one though others are not, and nobody knows how many are left.
func (s replicaSet) safelyAvailable() int {
	if s.statusUnreliable || s.rs.Spec.MinReadySeconds > 0 && !s.statusCaughtUp() {
		return 0
	}
	return s.availableInBoth()
}

// availableOf is what available will be when the ReplicaSet has been reduced to a size.
func (s replicaSet) safelyAvailableAt(size int) int {
	if s.rs.Spec.MinReadySeconds > 0 {
		return 0
	}
	return min(s.safelyAvailable(), size)
}

// disputed reports whether the cache of pods and the status show different numbers of available pods.
func (s replicaSet) countsDiffer() bool { return s.availableInBoth() < s.availableInEither() }

func (s replicaSet) unreadySurplus() int {
	return max(0, s.size()-max(int(s.rs.Status.ReadyReplicas), s.pods.ready))
}

// caughtUp reports whether the status shows the last reduction. A ReplicaSet of the first generation has never been reduced.
// Our ReplicaSet controller tells what its deletes were answered, so this may be true before the cache of pods shows them.
func (s replicaSet) statusCaughtUp() bool {
	seen := s.rs.Status.ObservedGeneration == s.rs.Generation || s.rs.Generation <= 1
	return seen && int(s.rs.Status.Replicas) <= s.size()
}

// keepsPods reports whether the ReplicaSet cannot delete the pods that it was to give up. The reason of the condition does not matter: upstream's
// ReplicaSet controller keeps the first.
func (s replicaSet) failsToDelete() bool {
	status := s.rs.Status
	return status.ObservedGeneration == s.rs.Generation && int(status.Replicas) > s.size() && slices.ContainsFunc(status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue
	})
}

// busy returns how much longer a ReplicaSet that we have just resized is left alone to act on its new size, at most patience after the resize; 0: it has
// acted, or has had the time. Its controller would not look at another size before, and what is given up meanwhile is given up in one write.
func (s replicaSet) shrinkWait(patience time.Duration, now time.Time) time.Duration {
	if s.resizedAt.IsZero() || s.rs.Status.ObservedGeneration >= s.rs.Generation {
		return 0
	}
	return max(0, s.resizedAt.Add(patience).Sub(now))
}

// gone reports whether the ReplicaSet wants no pods, has none, and its controller will make none for an earlier size.
func (s replicaSet) hasNoPods() bool {
	status := s.rs.Status
	return s.size() == 0 && status.ObservedGeneration == s.rs.Generation && status.Replicas == 0 &&
		(status.TerminatingReplicas == nil || *status.TerminatingReplicas == 0) && s.pods.unfinished == 0
}

// compareAge orders the older ReplicaSet first. It is a total order: names in a namespace differ.
func compareAge(a, b replicaSet) int {
	return cmp.Or(a.rs.CreationTimestamp.Compare(b.rs.CreationTimestamp.Time), cmp.Compare(a.rs.Name, b.rs.Name))
}
