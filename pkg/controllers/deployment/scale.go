package deployment

import (
	"cmp"
	"math"
	"slices"
)

// scale sizes the ReplicaSets of a Deployment that was scaled, or that is paused and may have been. A rollout in the middle keeps its
// proportions: every ReplicaSet with pods gets its share of the change, and the rollout goes on from there.
func (p pass) scaleTargets() sizing {
	active := slices.DeleteFunc(slices.Clone(p.all), func(s replicaSet) bool { return !s.isActive() })
	switch {
	case len(p.all) == 0:
		return sizing{}
	case len(active) == 0:
		only := p.all[len(p.all)-1] // the youngest
		if p.found {
			only = p.next
		}
		return sizing{targets: []target{p.wholeSize(only)}}
	case len(active) == 1:
		return sizing{targets: []target{p.wholeSize(active[0])}}
	case p.newIsSaturated():
		return p.dropOldTargets()
	}
	return sizing{targets: p.proportionalTargets(active)}
}

// whole gives one ReplicaSet all the replicas. That its annotations say so is part of it: as long as they do not the Deployment counts as scaled,
// and the rollout does not go on.
func (p pass) wholeSize(s replicaSet) target {
	limit := p.bounds.maxTotal() - p.facts.pendingOld - p.facts.pendingNew
	return target{replicaSet: s, to: min(p.bounds.replicas, max(limit, s.size())), reason: resizeScaled, annotate: s.isActive()}
}

// saturated reports whether the new ReplicaSet has all the replicas, knows so, and tells that all its pods are available.
func (p pass) newIsSaturated() bool {
	if !p.found {
		return false
	}
	desired, ok := sizeAnnotation(p.next.rs, desiredReplicasAnnotation)
	return ok && desired == p.bounds.replicas && p.next.size() == desired && p.next.statusAvailable() == desired
}

// dropOld takes all pods from old ReplicaSets, as soon as all that is known of those of the new one agrees.
func (p pass) dropOldTargets() (s sizing) {
	switch {
	case p.next.safelyAvailable() == p.next.size():
		for _, old := range p.old {
			if old.isActive() {
				s.targets = append(s.targets, target{replicaSet: old, reason: resizeSaturated})
			}
		}
	case !p.next.statusCaughtUp():
		s.deferred = []deferral{deferShrinkUnseen}
	default:
		s.deferred = []deferral{deferPodsDiffer}
	}
	return s
}

// shares divides the change among ReplicaSets with pods, the largest first; of equal ones the newer grows first and the older shrinks first. The
// largest gets what rounding leaves, also if it had to wait while others got their shares.
func (p pass) proportionalTargets(active []replicaSet) []target {
	change := 0
	if p.bounds.replicas > 0 {
		change = p.bounds.maxTotal()
	}
	for _, s := range active {
		change -= s.size()
	}
	if change > 0 {
		change = max(0, change-p.facts.pendingOld-p.facts.pendingNew)
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
			share = min(p.proportionalChange(s), left)
		case left < 0:
			share = max(p.proportionalChange(s), left)
		}
		left -= share
		targets[i] = target{replicaSet: s, to: s.size() + share, reason: resizeScaled, annotate: true}
	}
	late := slices.IndexFunc(targets, func(t target) bool { return p.sizedForOther(t.replicaSet) })
	if late > 0 && p.sizedForThis(targets[0].replicaSet) && targets[late].to >= targets[0].to {
		targets[0], targets[late] = targets[late], targets[0]
	}
	// What is left to take goes to the next where one has not so much: annotations that anybody can edit may have given it to others.
	for i := range targets {
		rest := max(left, -targets[i].to)
		targets[i].to = min(targets[i].to+rest, math.MaxInt32)
		left -= rest
	}
	return targets
}

// share is by how much a ReplicaSet would change if it kept its part of all pods there may be. That part is of what there could be when
// it got its size; where that is not known, of the pods that there are.
func (p pass) proportionalChange(s replicaSet) int {
	if p.bounds.replicas == 0 {
		return -s.size()
	}
	before, ok := sizeAnnotation(s.rs, maxReplicasAnnotation)
	if !ok || before == 0 {
		before = int(p.d.Status.Replicas)
	}
	if before <= 0 {
		return 0
	}
	to := math.Round(float64(s.size()) * float64(p.bounds.maxTotal()) / float64(before))
	return int(min(to, math.MaxInt32)) - s.size()
}
