package deployment

import (
	"slices"

	"minikcm/internal/timing"
)

// rollingTargets sizes the ReplicaSets of a rolling update. The new ReplicaSet is created in the surge, old
// ReplicaSets shrink while enough pods stay available, and the new one gets the freed capacity. Statuses may be
// arbitrarily old; see replicaSet.safelyAvailable.
func (in rolloutInput) rollingTargets() sizing {
	var s sizing
	limit := in.bounds.maxTotal() - in.facts.pendingOld
	next := in.next
	if !in.found {
		s.create = newReplicaSet(in.d, in.old, max(0, min(in.bounds.replicas, limit-totalSize(in.old))))
		next = replicaSet{rs: s.create}
	}

	// 1. The new ReplicaSet has at most all replicas.
	size, available, minAvailable := next.size(), next.safelyAvailable(), in.bounds.minAvailable()
	if size > in.bounds.replicas {
		size = in.bounds.replicas
		available = next.safelyAvailableAt(size)
		s.targets = append(s.targets, target{replicaSet: next, to: size})
	}
	if next.rs.Spec.MinReadySeconds < in.d.Spec.MinReadySeconds {
		available = 0 // unknown for the new minReadySeconds
	}

	// 2. Old ReplicaSets give up the pods that can be spared, unless their controller has yet to act on the
	//    last size.
	includeUnready, left := sumOf(in.all, replicaSet.availableInEither) < minAvailable, totalSize(in.old)
	for _, t := range shrinkTargets(in.old, available, minAvailable, includeUnready) {
		if wait := t.replicaSet.shrinkWait(statusInterval(in.d), in.now); wait > 0 {
			s.deferred, s.requeueAfter = append(s.deferred, deferShrinking), timing.MinPositive(s.requeueAfter, wait)
			continue
		}
		left -= t.replicaSet.size() - t.to
		s.targets = append(s.targets, t)
	}
	for _, old := range in.old {
		if old.backoff > 0 && old.isActive() {
			s.deferred, s.requeueAfter = append(s.deferred, deferResizeBackoff), timing.MinPositive(s.requeueAfter, old.backoff)
		}
	}

	// 3. The new ReplicaSet gets the capacity.
	if to := min(in.bounds.replicas, limit-left); to > size {
		s.targets = append(s.targets, target{replicaSet: next, to: to, intoCapacity: true})
	}

	// 4. Recheck if pod cache and statuses differ.
	if left > 0 && slices.ContainsFunc(in.all, replicaSet.countsDiffer) {
		s.deferred = append(s.deferred, deferPodsDiffer)
	}
	return s
}

func sumOf(sets []replicaSet, of func(replicaSet) int) (sum int) {
	for _, s := range sets {
		sum += of(s)
	}
	return sum
}

func totalSize(sets []replicaSet) int { return sumOf(sets, replicaSet.size) }

// shrinkTargets returns smaller sizes of old ReplicaSets, oldest first, such that minAvailable pods stay available.
// ReplicaSets whose changes back off are skipped. nextAvailable is the number of available pods of the new
// ReplicaSet: the sizes of the old ReplicaSets and nextAvailable together stay at least minAvailable, so pods that
// are not available yet do not count.
func shrinkTargets(old []replicaSet, nextAvailable, minAvailable int, includeUnready bool) (targets []target) {
	available := nextAvailable + sumOf(old, replicaSet.safelyAvailable)
	free := freePods(old, max(0, nextAvailable+totalSize(old)-minAvailable), includeUnready)
	spare := sparePods(old, free, available-minAvailable)
	for i, s := range old {
		if given := free[i] + spare[i]; given > 0 {
			targets = append(targets, target{replicaSet: s, to: s.size() - given})
		}
	}
	return targets
}

// freePods returns the number of pods that each ReplicaSet can give up without an available pod, up to limit in all.
//
// Normally these are the pods that are deleted before any ready pod. If too few pods are available anyway,
// includeUnready adds all pods that neither the status nor the pod cache shows as available: pods that never become
// available must not block the rollout. An available pod may be deleted in place of such a pod. Each source may be
// stale, so both have to agree.
func freePods(old []replicaSet, limit int, includeUnready bool) []int {
	given := make([]int, len(old))
	for i, s := range old {
		if s.backoff > 0 {
			continue
		}
		free := s.unreadySurplus()
		if includeUnready {
			free = s.size() - s.availableInEither()
		}
		given[i] = min(limit, free)
		limit -= given[i]
	}
	return given
}

// sparePods returns the number of pods that each ReplicaSet can give up beyond its free pods. spare is the number of
// available pods that are not necessary. A ReplicaSet whose available pods fit into spare may give up all pods.
// Otherwise each pod counts against spare.
func sparePods(old []replicaSet, free []int, spare int) []int {
	given := make([]int, len(old))
	tooFew := spare < 0
	spare = max(0, spare)
	for i, s := range old {
		if s.backoff > 0 {
			continue
		}
		given[i] = s.size() - free[i]
		if tooFew || s.safelyAvailable() > spare {
			given[i] = min(given[i], spare)
		}
		spare -= min(given[i], s.safelyAvailable())
	}
	return given
}
