package deployment

import "slices"

// rolling sizes the ReplicaSets of a rolling update: the new one is created in the room that the surge leaves, old ones shrink as far as enough
// pods stay available, and the new one gets what became free. Statuses may be arbitrarily old; see set.available and set.caughtUp.
func (p pass) rolling() sizing {
	var s sizing
	limit := p.bounds.most() - p.facts.reserved
	next := p.next
	if !p.found {
		next = p.newSet(max(0, min(p.bounds.replicas, limit-sizes(p.old))))
		s.create = next.rs
	}

	// 1. The new ReplicaSet never keeps more than all.
	size, available := next.size(), next.available()
	if next.rs.Spec.MinReadySeconds < p.d.Spec.MinReadySeconds {
		available = 0 // by what they are to be from now on, nobody knows yet
	}
	if size > p.bounds.replicas {
		size = p.bounds.replicas
		available = next.availableOf(size)
		s.targets = append(s.targets, target{set: next, to: size, why: whyTooMany})
	}

	// 2. Old ones give up what can be spared.
	shrunk := shrink(p.old, next, available, p.bounds.least())
	left := sizes(p.old)
	for _, t := range shrunk {
		left -= t.set.size() - t.to
	}
	s.targets = append(s.targets, shrunk...)

	// 3. The new one gets the room.
	if to := min(p.bounds.replicas, limit-left); to > size {
		s.targets = append(s.targets, target{set: next, to: to, why: whySurge})
	}

	// 4. Only the pods show that one has become unready, and no event of a ReplicaSet needs to follow.
	if left > 0 && slices.ContainsFunc(p.existing(), set.lowered) {
		s.held = append(s.held, holdPodsLower)
	}
	return s
}

// sizes is the sum of the sizes of ReplicaSets.
func sizes(sets []set) (sum int) {
	for _, s := range sets {
		sum += s.size()
	}
	return sum
}

// shrink chooses how many pods old ReplicaSets, oldest first, give up while least pods are to stay available. Of the new one nextAvailable are, once
// it has the size that it is to keep. First go pods that were not ready, since losing them costs nothing, then others.
//
// The sizes of the old ones and next together stay at least, so pods that are not available yet in the new one are not counted upon twice.
// Of pods that may be available no more go than there are above least, and all where none is counted upon. If by the statuses fewer than least
// are available already, all that are not go, though an available one may stand before them in the order of deletion: a rollout would wait for ever for
// pods that never become available.
func shrink(old []set, next set, nextAvailable, least int) []target {
	sum, available, told := nextAvailable, nextAvailable, next.told()
	for _, s := range old {
		sum += s.size()
		available += s.available()
		told += s.told()
	}
	room, spare := max(0, sum-least), max(0, available-least)
	to := make([]int, len(old))
	for i, s := range old {
		free := s.expendable()
		if told < least {
			free = s.size() - s.told()
		}
		k := min(room, free)
		to[i] = s.size() - k
		room -= k
	}
	var targets []target
	for i, s := range old {
		k := min(room, to[i])
		if available < least || s.available() > spare {
			k = min(k, spare)
		}
		to[i] -= k
		room, spare = room-k, spare-min(k, s.available())
		switch {
		case k > 0:
			targets = append(targets, target{set: s, to: to[i], why: whyAvailable})
		case to[i] < s.size():
			targets = append(targets, target{set: s, to: to[i], why: whyUnavailable})
		}
	}
	return targets
}
