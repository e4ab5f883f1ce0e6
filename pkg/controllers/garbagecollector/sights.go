package garbagecollector

import (
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

func (g *graph) uidOf(n *node) types.UID {
	if n.marks.has(odd) {
		return g.texts[n.uid]
	}
	return types.UID(n.uid.String())
}

func (g *graph) snapshot(n *node) object {
	o := object{
		resource: n.feed.typ.GroupResource, namespace: n.space.Value(), name: n.name,
		uid: g.uidOf(n), version: versionOf(n.version), marks: n.marks & (seen | facts),
	}
	o.refs = g.references(n)
	return o
}

func (g *graph) references(n *node) (all []reference) {
	for e := n.refs; e != nil; e = e.next {
		all = append(all, g.reference(e))
	}
	return all
}

// dependents is what an owner waits for, as the graph shows it.
type dependents struct {
	owner    object
	all      int      // references that can be to it
	idle     int      // blocking ones whose objects are not being deleted
	waiting  int      // blocking ones whose objects wait for dependents of their own
	blocking int      // blocking ones
	some     []object // the first of those that block, by UID
}

// dependentsOf counts who refers to an owner and returns up to limit of those that block its deletion. It reports false if it is not seen.
func (g *graph) dependentsOf(key id, limit int) (d dependents, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return dependents{}, false
	}
	d.owner = g.snapshot(n)
	var first []*node
	for e := n.dependents; e != nil; e = e.after {
		if !g.reachable(e) {
			continue
		}
		d.all++
		if !g.blocks(e) {
			continue
		}
		d.blocking++
		switch m := e.dependent.marks; {
		case m.waiting():
			d.waiting++
		case !m.has(terminating):
			d.idle++
		}
		first = insertFirst(first, e.dependent, limit)
	}
	for _, b := range first {
		d.some = append(d.some, g.snapshot(b))
	}
	return d, true
}

// blocks reports whether a reference holds its owner. One to itself does not: the object would never go. Nor does one that cannot be meant,
// or everybody could hold the objects of others.
func (g *graph) blocks(e *edge) bool { return e.blocking && e.owner != e.dependent && g.reachable(e) }

// insertFirst keeps the nodes with the lowest UIDs, in their order, each once.
func insertFirst(first []*node, n *node, limit int) []*node {
	at, known := slices.BinarySearchFunc(first, n, func(a, b *node) int { return bytes.Compare(a.uid[:], b.uid[:]) })
	if known || at >= limit {
		return first
	}
	first = slices.Insert(first, at, n)
	return first[:min(len(first), limit)]
}

// referring returns every object with a reference that can be to an owner, which must be seen, in no order.
func (g *graph) referring(key id) []object {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return nil
	}
	var all []object
	met := map[*node]bool{}
	for e := n.dependents; e != nil; e = e.after {
		if g.reachable(e) && !met[e.dependent] {
			met[e.dependent] = true
			all = append(all, g.snapshot(e.dependent))
		}
	}
	return all
}

// all returns everything that there may be something to do about: what a term begins with.
func (g *graph) all() wakes {
	g.lock.Lock()
	defer g.lock.Unlock()
	var w wakes
	for _, n := range g.nodes {
		if n.marks.has(seen) {
			g.wakeSuspect(n, &w)
		}
	}
	return w
}

// owns reports whether others refer to an object, which need not be seen.
func (g *graph) owns(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && (n.marks.has(seen) && g.ownsOthers(n) || !n.marks.has(seen) && n.dependents != nil)
}

// groupOf is who an object shares the attention of a loop with, so that none keeps others from their turn: the objects of its namespace, or, in none, of its
// type. Empty: it is not seen.
func (g *graph) groupOf(key id) string {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return ""
	}
	if namespace := n.space.Value(); namespace != "" {
		return namespace
	}
	return "/" + n.feed.typ.GroupResource.String() // which is no namespace
}

// sees reports whether an object is seen.
func (g *graph) sees(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && n.marks.has(seen)
}
