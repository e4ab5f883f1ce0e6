package deployment

import (
	"slices"

	"minikcm/pkg/controller"
)

// rolling sizes the ReplicaSets of a rolling update: the new one is created in the room that the surge leaves, old ones shrink as far as enough
// pods stay available, and the new one gets what became free. Statuses may be arbitrarily old; see set.available and set.caughtUp.
func (p pass) rollingTargets() sizing {
	var s sizing
	limit := p.bounds.maxTotal() - p.facts.pendingOld
	next := p.next
	if !p.found {
		s.create = newReplicaSet(p.d, p.old, max(0, min(p.bounds.replicas, limit-totalSize(p.old))))
		next = replicaSet{rs: s.create, current: true}
	}

	// 1. The new ReplicaSet never keeps more than all.
	size, available, least := next.size(), next.safelyAvailable(), p.bounds.minAvailable()
	if size > p.bounds.replicas {
		size = p.bounds.replicas
		available = next.safelyAvailableAt(size)
		s.targets = append(s.targets, target{replicaSet: next, to: size, reason: resizeExcess})
	}
	if next.rs.Spec.MinReadySeconds < p.d.Spec.MinReadySeconds {
		available = 0 // by what they are to be from now on, nobody knows yet
	}

	// 2. Old ones give up what can be spared, in no more steps than their controller takes.
	bold, left := sumOf(p.all, replicaSet.availableInEither) < least, totalSize(p.old)
	for _, t := range shrinkTargets(p.old, available, least, bold) {
		if wait := t.replicaSet.shrinkWait(p.statusInterval(), p.now); wait > 0 {
			s.deferred, s.requeueAfter = append(s.deferred, deferShrinking), controller.MinPositive(s.requeueAfter, wait)
			continue
		}
		left -= t.replicaSet.size() - t.to
		s.targets = append(s.targets, t)
	}

	for _, old := range p.old {
		if old.backoff > 0 && old.isActive() { // what it cannot give the others do
			s.deferred, s.requeueAfter = append(s.deferred, deferResizeBackoff), controller.MinPositive(s.requeueAfter, old.backoff)
		}
	}

	// 3. The new one gets the room.
	if to := min(p.bounds.replicas, limit-left); to > size {
		s.targets = append(s.targets, target{replicaSet: next, to: to, reason: resizeIntoCapacity})
	}

	// 4. No event of a ReplicaSet needs to follow when the cache of pods agrees with the statuses again.
	if left > 0 && slices.ContainsFunc(p.all, replicaSet.countsDiffer) {
		s.deferred = append(s.deferred, deferPodsDiffer)
	}
	return s
}

// total is the sum of a number over ReplicaSets.
func sumOf(sets []replicaSet, of func(replicaSet) int) (sum int) {
	for _, s := range sets {
		sum += of(s)
	}
	return sum
}

func totalSize(sets []replicaSet) int { return sumOf(sets, replicaSet.size) }

// shrink chooses how many pods old ReplicaSets give up while least pods are to stay available: oldest first, but for those whose changes
// were rejected a moment ago. Of the new one nextAvailable are available, once it has the size that it is to keep. The
// sizes of the old ones and nextAvailable together stay at least, so pods of the new one that are not available yet are not counted upon. bold is for giveFree.
func shrinkTargets(old []replicaSet, nextAvailable, least int, bold bool) (targets []target) {
	room := max(0, nextAvailable+totalSize(old)-least)
	available := nextAvailable + sumOf(old, replicaSet.safelyAvailable)
	free := giveFree(old, room, bold)
	for _, k := range free {
		room -= k
	}
	spare := giveSpare(old, free, room, available-least)
	for i, s := range old {
		t := target{replicaSet: s, to: s.size() - free[i] - spare[i], reason: resizeUnavailable}
		switch {
		case spare[i] > 0:
			t.reason = resizeSpare
		case free[i] == 0:
			continue
		}
		targets = append(targets, t)
	}
	return targets
}

// giveFree takes, of each ReplicaSet and up to room in all, the pods that cost nothing.
//
// Normally those are the pods that are deleted before any ready one, see set.expendable. With bold, for when too few pods are available anyway, they are all
// pods that neither the status nor the cache of pods shows as available. An available pod may be deleted before one of those, but otherwise the rollout
// would wait for ever for pods that never become available. Both sources have to say so because each may be stale.
func giveFree(old []replicaSet, room int, bold bool) []int {
	given := make([]int, len(old))
	for i, s := range old {
		if s.backoff > 0 {
			continue
		}
		free := s.unreadySurplus()
		if bold {
			free = s.size() - s.availableInEither()
		}
		given[i] = min(room, free)
		room -= given[i]
	}
	return given
}

// giveSpare takes what a ReplicaSet has beyond free, up to room in all. Any of those pods may be available, and spare is how many more of them there
// are than there must be. One that has no more than that gives all its pods; of others, and if there are too few, each pod counts as an available one.
func giveSpare(old []replicaSet, free []int, room, spare int) []int {
	given := make([]int, len(old))
	tooFew := spare < 0
	spare = max(0, spare)
	for i, s := range old {
		if s.backoff > 0 {
			continue
		}
		k := min(room, s.size()-free[i])
		if tooFew || s.safelyAvailable() > spare {
			k = min(k, spare)
		}
		given[i] = k
		room, spare = room-k, spare-min(k, s.safelyAvailable())
	}
	return given
}
