package deployment

// recreate sizes the ReplicaSets of a Deployment whose old pods must be gone before there are new ones: all old ReplicaSets to nothing first, the
// new one when they, their controller and the pods say that there is nothing left. A new one that has pods already, and is only scaled, does not wait for
// old pods that are still ending.
func (p pass) recreate() sizing {
	var s sizing
	for _, old := range p.old {
		if old.active() {
			s.targets = append(s.targets, target{set: old, why: whyRecreate})
		}
	}
	if p.found && p.next.size() > p.bounds.replicas {
		s.targets = append(s.targets, target{set: p.next, to: p.bounds.replicas, why: whyTooMany})
	}
	wanted := !p.found || p.next.size() < p.bounds.replicas
	if len(s.targets) > 0 || !wanted {
		return s
	}
	if p.facts.reserved > 0 { // there may be one that nobody has seen yet
		s.held = append(s.held, holdOldPods)
		return s
	}
	scaled := p.found && p.next.active() && p.sizedForOther(p.next) // it has had pods beside those that are still ending
	for _, old := range p.old {
		if !old.gone() && !(scaled && old.caughtUp()) {
			s.held = append(s.held, holdOldPods)
			return s
		}
	}
	if !p.found {
		s.create = newReplicaSet(p.d, p.old, p.bounds.replicas)
		return s
	}
	s.targets = []target{{set: p.next, to: p.bounds.replicas, why: whyOldGone}}
	return s
}
