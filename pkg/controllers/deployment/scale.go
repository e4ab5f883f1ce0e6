package deployment

import (
	"cmp"
	"math"
	"slices"
)

// scaleTargets sizes the ReplicaSets of a Deployment that was scaled or is paused. During a rollout every active
// ReplicaSet gets its proportion of the change, and the rollout continues from there.
func (p pass) scaleTargets() sizing {
	active := slices.DeleteFunc(slices.Clone(p.all), func(s replicaSet) bool { return !s.isActive() })
	switch {
	case len(p.all) == 0:
		return sizing{}
	case len(active) == 0:
		only := p.all[len(p.all)-1]
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

// wholeSize gives all replicas to one ReplicaSet. The annotations are part of the size: while they differ, the
// Deployment counts as scaled and the rollout does not continue.
func (p pass) wholeSize(s replicaSet) target {
	limit := p.bounds.maxTotal() - p.facts.pendingOld - p.facts.pendingNew
	return target{replicaSet: s, to: min(p.bounds.replicas, max(limit, s.size())), annotate: s.isActive()}
}

// newIsSaturated reports whether size, annotation and status of the new ReplicaSet show all replicas.
func (p pass) newIsSaturated() bool {
	return p.found && p.sizedForThis(p.next) && p.next.size() == p.bounds.replicas && p.next.statusAvailable() == p.bounds.replicas
}

// dropOldTargets stops all old pods once the status and the pod cache agree on the new ones.
func (p pass) dropOldTargets() (s sizing) {
	switch {
	case p.next.safelyAvailable() == p.next.size():
		for _, old := range p.old {
			if old.isActive() {
				s.targets = append(s.targets, target{replicaSet: old})
			}
		}
	case !statusCaughtUp(p.next.rs):
		s.deferred = []deferral{deferShrinkUnseen}
	default:
		s.deferred = []deferral{deferPodsDiffer}
	}
	return s
}

// proportionalTargets divides the change among the active ReplicaSets, largest first. Of equal sizes, the newer
// grows first and the older shrinks first. The largest ReplicaSet gets the rest of the rounding.
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
func (p pass) proportionalChange(s replicaSet) int {
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
