package garbagecollector

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// blockers are, by the UID of every owner that waits for its dependents, the UIDs of the dependents that hold it and wait themselves.
type blockers map[types.UID][]types.UID

// ring is what keeps a number of owners waiting for each other, and how to break it.
type ring struct {
	victim  types.UID   // the owner that is no longer to wait for the others: the one with the lowest UID
	release []types.UID // dependents of it whose references are to be made non-blocking, sorted
}

// ringOf finds the ring that an owner is part of. Whichever member is asked about, and whoever asks, the victim is the same, so only the victim
// has to do something. It reports false if there is no ring.
func (b blockers) ringOf(owner types.UID) (ring, bool) {
	below := b.reachable(owner)
	above := blockers{}
	for o := range below {
		for _, d := range b[o] {
			above[d] = append(above[d], o)
		}
	}
	// Members are those that wait for the owner, and that it waits for. It waits for itself by definition, so there must be others: what refers
	// to itself only does not count.
	members := map[types.UID]bool{}
	for m := range above.reachable(owner) {
		if below[m] {
			members[m] = true
		}
	}
	if len(members) < 2 {
		return ring{}, false
	}
	r := ring{victim: slices.Min(slices.Collect(maps.Keys(members)))}
	for _, d := range b[r.victim] {
		if d != r.victim && members[d] {
			r.release = append(r.release, d)
		}
	}
	slices.Sort(r.release)
	r.release = slices.Compact(r.release)
	return r, true
}

// reachable returns everything that can be reached from a member, itself included.
func (b blockers) reachable(from types.UID) map[types.UID]bool {
	met := map[types.UID]bool{from: true}
	for open := []types.UID{from}; len(open) > 0; {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		for _, to := range b[last] {
			if !met[to] {
				met[to] = true
				open = append(open, to)
			}
		}
	}
	return met
}

// waitingBelow returns who waits for whom, below an owner.
func (g *graph) waitingBelow(key id) blockers {
	g.lock.Lock()
	defer g.lock.Unlock()
	b := blockers{}
	n := g.nodes[key]
	if n == nil || !n.marks.waiting() {
		return b
	}
	for open := []*node{n}; len(open) > 0; {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		uid := g.uidOf(last)
		if _, met := b[uid]; met {
			continue
		}
		b[uid] = nil
		for e := last.dependents; e != nil; e = e.after {
			if g.blocks(e) && e.dependent.marks.waiting() {
				b[uid] = append(b[uid], g.uidOf(e.dependent))
				open = append(open, e.dependent)
			}
		}
	}
	return b
}
