package deployment

// recreate sizes the ReplicaSets of a Deployment whose old pods must be gone before there are new ones: all old ReplicaSets to nothing first, the
// new one when they, their controller and the pods say that there is nothing left. A new one that has pods already, and is only scaled, does not wait for
// old pods that are still ending.
func (p pass) recreateTargets() sizing {
	var s sizing
	for _, old := range p.old {
		if old.isActive() {
			s.targets = append(s.targets, target{replicaSet: old, reason: resizeRecreate})
		}
	}
	if p.found && p.next.size() > p.bounds.replicas {
		s.targets = append(s.targets, target{replicaSet: p.next, to: p.bounds.replicas, reason: resizeExcess})
	}
	wanted := !p.found || p.next.size() < p.bounds.replicas
	if len(s.targets) > 0 || !wanted {
		return s
	}
	if p.facts.pendingOld > 0 { // there may be one that nobody has seen yet
		s.deferred = append(s.deferred, deferOldPods)
		return s
	}
	scaled := p.found && p.next.isActive() && p.sizedForOther(p.next) // it has had pods beside those that are still ending
	for _, old := range p.old {
		if !old.hasNoPods() && !(scaled && old.statusCaughtUp()) {
			s.deferred = append(s.deferred, deferOldPods)
			return s
		}
	}
	if !p.found {
		s.create = newReplicaSet(p.d, p.old, p.bounds.replicas)
		return s
	}
	s.targets = []target{{replicaSet: p.next, to: p.bounds.replicas, reason: resizeOldStopped}}
	return s
}
