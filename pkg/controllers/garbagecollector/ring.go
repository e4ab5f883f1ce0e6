package garbagecollector

import "bytes"

// ringBlockers returns the blockers of an owner if all direct and indirect blockers of the owner wait for their own
// dependents, the owner is one of those, and its UID is the lowest. Otherwise another object has to go first.
func (g *graph) ringBlockers(key id) (blockers []object) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.waiting() {
		return nil
	}
	members := map[*node]bool{}
	for open := []*node{n}; len(open) > 0; {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		for e := last.dependents; e != nil; e = e.after {
			switch d := e.dependent; {
			case !g.blocks(e) || members[d]:
			case !d.marks.waiting() || bytes.Compare(d.uid[:], n.uid[:]) < 0:
				return nil
			default:
				members[d] = true
				open = append(open, d)
			}
		}
	}
	if !members[n] {
		return nil
	}
	for e := n.dependents; e != nil; e = e.after {
		if g.blocks(e) {
			blockers = append(blockers, g.snapshot(e.dependent))
		}
	}
	return blockers
}
