package deployment

import "slices"

// recreateTargets sizes the ReplicaSets for the strategy Recreate. Old ReplicaSets go to 0 first. The new one gets
// its size when the statuses for that size and the pod cache show that all old pods have stopped, and no old ReplicaSet
// may still be created. An active new ReplicaSet that is only scaled does not wait for terminating old pods.
func (in rolloutInput) recreateTargets() sizing {
	var s sizing
	for _, old := range in.old {
		if old.isActive() {
			s.targets = append(s.targets, target{replicaSet: old})
		}
	}
	if in.found && in.next.size() > in.bounds.replicas {
		s.targets = append(s.targets, target{replicaSet: in.next, to: in.bounds.replicas})
	}
	scaled := in.found && in.next.isActive() && in.sizedForOther(in.next)
	hasPods := func(old replicaSet) bool { return !old.hasNoPods() && !(scaled && statusCaughtUp(old.rs)) }
	switch {
	case len(s.targets) > 0 || in.found && in.next.size() == in.bounds.replicas:
	case in.facts.pendingOld > 0 || slices.ContainsFunc(in.old, hasPods):
		s.deferred = []deferral{deferOldPods}
	case !in.found:
		s.create = newReplicaSet(in.d, in.old, in.bounds.replicas)
	default:
		s.targets = []target{{replicaSet: in.next, to: in.bounds.replicas}}
	}
	return s
}
