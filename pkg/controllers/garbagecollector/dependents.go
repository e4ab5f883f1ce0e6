package garbagecollector

import "bytes"

// dependents are the objects that refer to an owner.
type dependents struct {
	owner    object
	blocking int      // references that block the deletion of the owner
	idle     int      // those of objects that are not being deleted
	waiting  int      // those of objects that wait for dependents of their own
	some     []object // the first blocking ones
}

// dependentsOf counts the blocking dependents of an owner and returns some of them. It reports false if the graph does
// not show the owner.
func (g *graph) dependentsOf(key id, limit int) (d dependents, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.observedNodeLocked(key)
	if n == nil {
		return dependents{}, false
	}
	d.owner = g.objectOfNodeLocked(n)
	for e := n.dependents; e != nil; e = e.nextDependent {
		if !e.isBlocking() {
			continue
		}
		d.blocking++
		switch m := e.dependent.marks; {
		case m.waiting():
			d.waiting++
		case !m.has(terminating):
			d.idle++
		}
		if len(d.some) < limit {
			d.some = append(d.some, g.objectOfNodeLocked(e.dependent))
		}
	}
	return d, true
}

// isBlocking reports whether a reference blocks the deletion of its owner. A reference of an object to itself does
// not, nor does a reference across namespaces.
func (e *edge) isBlocking() bool {
	return e.blocking && e.owner != e.dependent && e.isReachable()
}

// cycleBlockers returns the blockers of an owner that are in a cycle with the owner. All direct and indirect blockers
// of the owner have to wait for their own dependents, and the UID of the owner has to be the lowest. Otherwise
// another object has to go first.
func (g *graph) cycleBlockers(key id) (blockers []object) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.waiting() {
		return nil
	}
	visitBlockers := func(n *node, visit func(*node)) {
		for e := n.dependents; e != nil; e = e.nextDependent {
			if e.isBlocking() {
				visit(e.dependent)
			}
		}
	}
	for d := range reachable(n, visitBlockers) {
		if !d.marks.waiting() || bytes.Compare(d.uid[:], n.uid[:]) < 0 {
			return nil
		}
	}
	waitForOwner := reachable(n, func(n *node, visit func(*node)) {
		for e := n.refs; e != nil; e = e.nextRef {
			if e.isBlocking() {
				visit(e.owner)
			}
		}
	})
	visitBlockers(n, func(d *node) {
		if waitForOwner[d] {
			blockers = append(blockers, g.objectOfNodeLocked(d))
		}
	})
	return blockers
}

// reachable returns the nodes that are reached from a node over the given neighbours.
func reachable(from *node, neighbours func(*node, func(*node))) map[*node]bool {
	found := map[*node]bool{}
	for open := []*node{from}; len(open) > 0; {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		neighbours(last, func(n *node) {
			if !found[n] {
				found[n] = true
				open = append(open, n)
			}
		})
	}
	return found
}

// dependentObjects returns the dependents of an owner.
func (g *graph) dependentObjects(key id) []object {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.observedNodeLocked(key)
	if n == nil {
		return nil
	}
	var all []object
	for e := n.dependents; e != nil; e = e.nextDependent {
		if e.isReachable() {
			all = append(all, g.objectOfNodeLocked(e.dependent))
		}
	}
	return all
}

// candidateKeys returns the keys of all candidates in the graph.
func (g *graph) candidateKeys() queueKeys {
	g.lock.Lock()
	defer g.lock.Unlock()
	var keys queueKeys
	for _, n := range g.nodes {
		keys.addCandidate(n)
	}
	return keys
}

// groupOf returns the group of an object in the fair queue of a loop: its namespace, or its type if the object is
// cluster-scoped. It is empty if the graph does not show the object.
func (g *graph) groupOf(key id) string {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.observedNodeLocked(key)
	if n == nil {
		return ""
	}
	if namespace := n.namespace.Value(); namespace != "" {
		return namespace
	}
	return "/" + n.store.typ.GroupResource.String()
}
