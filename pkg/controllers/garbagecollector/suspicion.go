package garbagecollector

import (
	"slices"
	"time"

	"minikcm/internal/timing"
)

// doubts reports whether an object has a reference that may not be to a living owner.
func (g *graph) doubts(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && g.doubted(n)
}

// doubted is doubts with the lock held.
func (g *graph) doubted(n *node) bool {
	if !n.marks.has(seen) || n.marks.has(terminating) {
		return false
	}
	for e := n.refs; e != nil; e = e.next {
		if g.doubt(e) != none {
			return true
		}
	}
	return false
}

// doubt is what the graph holds against a reference.
type doubt uint8

const (
	none       doubt = iota // the owner is seen where the reference says, and lives
	unseen                  // nothing with this UID is seen
	mismatched              // what is seen with this UID has another name or kind
	elsewhere               // what is seen with this UID is in a namespace that the object cannot refer into
	leaving                 // the owner waits for its dependents to go
)

func (g *graph) doubt(e *edge) doubt {
	return g.doubtOf(e.owner, e.dependent.space.Value(), e.kind.Value(), e.name)
}

// doubtOf is what the graph holds against a reference from a namespace to an owner, by its kind and name as they are written; nil: nobody refers to it.
func (g *graph) doubtOf(owner *node, namespace string, kind writtenKind, name string) doubt {
	switch {
	case owner == nil || !owner.marks.has(seen):
		return unseen
	case owner.space != clusterScope && owner.space.Value() != namespace:
		return elsewhere
	case !g.isCalled(owner, kind, name):
		return mismatched
	case owner.marks.waiting():
		return leaving
	}
	return none
}

// look returns an object, what there is against each of its references, and whether others refer to it. It reports false if it is not seen.
func (g *graph) look(key id) (o object, against []suspicion, owns, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return object{}, nil, false, false
	}
	o = g.snapshot(n)
	return o, g.heldAgainst(o), g.ownsOthers(n), true
}

// ownsOthers reports whether other objects refer to one, which must be seen, in a way that can be meant.
func (g *graph) ownsOthers(n *node) bool {
	for e := n.dependents; e != nil; e = e.after {
		if e.dependent != n && g.reachable(e) {
			return true
		}
	}
	return false
}

// against is what there is against the references of an object that was read live, and that the graph may not show as it is now.
func (g *graph) against(o object) []suspicion {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.heldAgainst(o)
}

// heldAgainst is against with the lock held.
func (g *graph) heldAgainst(o object) []suspicion {
	since := o.read
	if since.IsZero() {
		since = g.clock.Now()
	}
	if n := g.nodes[keyed(o)]; n != nil && n.refs != nil && slices.Equal(g.references(n), o.refs) {
		since = timing.Earlier(since, g.began.Add(n.refs.since))
	}
	against := make([]suspicion, 0, len(o.refs))
	for _, r := range o.refs {
		key, _ := idOf(r.uid)
		n, kind := g.nodes[key], writtenKind{r.apiVersion, r.kind}
		against = append(against, suspicion{
			doubt: g.doubtOf(n, o.namespace, kind, r.name), gone: g.goneAs(n, kind), departed: g.gone[n].at, since: timing.Later(since, g.denied[n]),
		})
	}
	return against
}

// suspicion is what the graph knows of the owner that a reference names.
type suspicion struct {
	doubt    doubt
	gone     time.Time // when the feed of its kind told that it was deleted; zero: it did not
	departed time.Time // when any feed did, also that of another server: reason to ask, and no proof; zero: none did
	since    time.Time // when the object was first seen to refer to it; who wrote the reference had seen the owner before
}
