package deployment

// recreateTargets sizes the ReplicaSets for the strategy Recreate. Old ReplicaSets go to 0 first. The new one gets
// its size when the statuses for that size and the pod cache show that all old pods have stopped. An active new
// ReplicaSet that is only scaled does not wait for terminating old pods.
func (p pass) recreateTargets() sizing {
	var s sizing
	for _, old := range p.old {
		if old.isActive() {
			s.targets = append(s.targets, target{replicaSet: old})
		}
	}
	if p.found && p.next.size() > p.bounds.replicas {
		s.targets = append(s.targets, target{replicaSet: p.next, to: p.bounds.replicas})
	}
	wanted := !p.found || p.next.size() < p.bounds.replicas
	if len(s.targets) > 0 || !wanted {
		return s
	}
	if p.facts.pendingOld > 0 { // an old ReplicaSet may still be created
		s.deferred = append(s.deferred, deferOldPods)
		return s
	}
	scaled := p.found && p.next.isActive() && p.sizedForOther(p.next)
	for _, old := range p.old {
		if !old.hasNoPods() && !(scaled && statusCaughtUp(old.rs)) {
			s.deferred = append(s.deferred, deferOldPods)
			return s
		}
	}
	if !p.found {
		s.create = newReplicaSet(p.d, p.old, p.bounds.replicas)
		return s
	}
	s.targets = []target{{replicaSet: p.next, to: p.bounds.replicas}}
	return s
}
