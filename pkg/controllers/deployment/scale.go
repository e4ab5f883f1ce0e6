package deployment

import (
	"cmp"
	"math"
	"slices"
)

// scaleTargets sizes the ReplicaSets of a Deployment that was scaled or is paused. During a rollout every active
// ReplicaSet gets its proportion of the change, and the rollout continues from there.
func (in rolloutInput) scaleTargets() sizing {
	active := slices.DeleteFunc(slices.Clone(in.all), func(s replicaSet) bool { return !s.isActive() })
	switch {
	case len(in.all) == 0:
		return sizing{}
	case len(active) == 0:
		only := in.all[len(in.all)-1]
		if in.found {
			only = in.next
		}
		return sizing{targets: []target{in.wholeSize(only)}}
	case len(active) == 1:
		return sizing{targets: []target{in.wholeSize(active[0])}}
	case in.newIsSaturated():
		return in.dropOldTargets()
	}
	return sizing{targets: in.proportionalTargets(active)}
}

// wholeSize gives all replicas to one ReplicaSet. The annotations are part of the size: while they differ, the
// Deployment counts as scaled and the rollout does not continue.
func (in rolloutInput) wholeSize(s replicaSet) target {
	limit := in.bounds.maxTotal() - in.facts.pendingOld - in.facts.pendingNew
	return target{replicaSet: s, to: min(in.bounds.replicas, max(limit, s.size())), annotate: s.isActive()}
}

// newIsSaturated reports whether size, annotation and status of the new ReplicaSet show all replicas.
func (in rolloutInput) newIsSaturated() bool {
	if !in.found {
		return false
	}
	desired, ok := sizeAnnotation(in.next.rs, desiredReplicasAnnotation)
	return ok && desired == in.bounds.replicas && in.next.size() == in.bounds.replicas && in.next.statusAvailable() == in.bounds.replicas
}

// dropOldTargets stops all old pods once the status and the pod cache agree on the new ones.
func (in rolloutInput) dropOldTargets() (s sizing) {
	switch {
	case in.next.safelyAvailable() == in.next.size():
		for _, old := range in.old {
			if old.isActive() {
				s.targets = append(s.targets, target{replicaSet: old})
			}
		}
	case !statusCaughtUp(in.next.rs):
		s.deferred = []deferral{deferShrinkUnseen}
	default:
		s.deferred = []deferral{deferPodsDiffer}
	}
	return s
}

// proportionalTargets divides the change among the active ReplicaSets, largest first. Of equal sizes, the newer
// grows first and the older shrinks first. The largest ReplicaSet gets the rest of the rounding.
func (in rolloutInput) proportionalTargets(active []replicaSet) []target {
	change := 0
	if in.bounds.replicas > 0 {
		change = in.bounds.maxTotal()
	}
	for _, s := range active {
		change -= s.size()
	}
	if change > 0 {
		change = max(0, change-in.facts.pendingOld-in.facts.pendingNew)
	}
	slices.SortFunc(active, func(a, b replicaSet) int {
		age := compareAge(a, b)
		if change > 0 {
			age = -age
		}
		return cmp.Or(-cmp.Compare(a.size(), b.size()), age)
	})
	targets := make([]target, len(active))
	left := change
	for i, s := range active {
		var share int
		switch {
		case left > 0:
			share = min(in.proportionalChange(s), left)
		case left < 0:
			share = max(in.proportionalChange(s), left)
		}
		left -= share
		targets[i] = target{replicaSet: s, to: s.size() + share, annotate: true}
	}
	// Annotations can be edited, so the rest may exceed a size. It continues with the next ReplicaSet.
	for i := range targets {
		rest := max(left, -targets[i].to)
		targets[i].to = min(targets[i].to+rest, math.MaxInt32)
		left -= rest
	}
	return targets
}

// proportionalChange returns the change of a size that keeps its proportion of the maximum number of pods. The base
// is the maximum at the time of the last resize, or else the number of pods in the status.
func (in rolloutInput) proportionalChange(s replicaSet) int {
	before, ok := sizeAnnotation(s.rs, maxReplicasAnnotation)
	if !ok || before == 0 {
		before = int(in.d.Status.Replicas)
	}
	if before <= 0 {
		return 0
	}
	to := math.Round(float64(s.size()) * float64(in.bounds.maxTotal()) / float64(before))
	return int(min(to, math.MaxInt32)) - s.size()
}
