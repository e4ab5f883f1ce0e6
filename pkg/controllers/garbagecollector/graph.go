package garbagecollector

import (
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// graph is all that is known of the cluster: a node for every object of every type that is watched, and for every object that is only referred
// to; an edge for every owner reference. It is what feeds write into, so there is no other copy. It sends no requests, and its lock is held
// for microseconds, but for a walk over all nodes, over the dependents of one owner, or over the references of one object: 30 ms for 100,000.
//
// deny removes an object that a live read did not find, vanish one that is no longer seen, depart records the deletion event of a feed, and tidy drops the node
// when nothing refers to it any more.
//
// It tells who should be looked at. What it shows is a suspicion and never a proof: see evidence.go.
type graph struct {
	clock clock.PassiveClock
	began time.Time
	wake  func(wakes) // called without the lock, from the goroutines of the feeds

	lock   sync.Mutex
	nodes  map[id]*node
	feeds  map[schema.GroupResource]*feed
	texts  map[id]types.UID    // of UIDs that are no UUID
	gone   map[*node]departure // of objects that are still referred to
	denied map[*node]time.Time // when a live read did not find an object that was seen until then
}

// departure is what a feed told of the deletion of an object.
type departure struct {
	at      time.Time
	typ     objectType
	version uint64 // of the event; 0: none that is a number
}

// node is one object. There may be hundreds of thousands, so its size is tested.
type node struct {
	uid        id
	version    uint64                // 0: none that is a number
	name       string                // while the object is not seen, as its first reference has it
	space      unique.Handle[string] // the namespace
	feed       *feed                 // nil if the object is not seen
	marks      marks
	refs       *edge // the first, in the order in which they are written
	dependents *edge // the first, in no order
}

// clusterScope is the namespace of cluster-scoped objects, and of objects that are not seen.
var clusterScope = unique.Make("")

// wakes are the objects that a change makes worth a look.
type wakes struct {
	objects []id // whose references may not be to living owners
	owners  []id // that are being deleted, and may be let go
}

func (w *wakes) object(n *node) { w.objects = append(w.objects, n.uid) }
func (w *wakes) owner(n *node)  { w.owners = append(w.owners, n.uid) }

func newGraph(c clock.PassiveClock, wake func(wakes)) *graph {
	return &graph{
		clock: c, began: c.Now(), wake: wake, nodes: map[id]*node{}, feeds: map[schema.GroupResource]*feed{},
		texts: map[id]types.UID{}, gone: map[*node]departure{}, denied: map[*node]time.Time{},
	}
}

// change runs a change under the lock and tells afterwards whom it has woken.
func (g *graph) change(do func(*wakes)) {
	var w wakes
	g.lock.Lock()
	do(&w)
	g.lock.Unlock()
	if len(w.objects)+len(w.owners) > 0 {
		g.wake(w)
	}
}

// put notes how an object is. The lock is held, as for all that follow.
//
// Only feeds call it: what other reads show is not in the order of their events. An older event does not undo a newer sight of an object all the same,
// where versions can be compared. A list does: it is of what there is, and older only if the API server was restored from a backup.
func (g *graph) put(f *feed, m metav1.Object, listed bool, w *wakes) {
	if m.GetUID() == "" {
		return // what an aggregated API makes up has no identity, and nothing can refer to it
	}
	n := g.nodeOf(m.GetUID(), m.GetName())
	was := n.marks
	first := !was.has(seen)
	if !first && n.feed != f {
		// One object under two types, as the projects of OpenShift are namespaces: the API server's own type counts.
		if n.feed.typ.local || !f.typ.local {
			return
		}
		g.unplace(n)
	}
	delete(g.denied, n)
	anew := first || n.feed != f
	version := numberOf(m.GetResourceVersion())
	switch d, departed := g.gone[n]; {
	case !f.typ.local || version == 0 || listed:
	case departed && d.typ == f.typ && version <= d.version:
		return
	case !anew && version < n.version:
		if was&epoch != f.epoch {
			f.shown++
		}
		n.marks = was&^epoch | f.epoch
		return
	}
	if anew {
		n.feed, n.space = f, unique.Make(m.GetNamespace())
		f.count++
		delete(g.gone, n)
	}
	n.name = m.GetName() // also if equal: the text is shared with an informer's cache
	n.version = version
	if anew || was&epoch != f.epoch {
		f.shown++
	}
	n.marks = was&odd | seen | marksOf(m) | f.epoch
	rewired := !g.sameRefs(n, m.GetOwnerReferences())
	if rewired {
		g.wakeOwners(n, w) // those before
		g.rewire(n, m.GetOwnerReferences())
	}
	if anew {
		g.meet(n, w)
	}
	if anew || rewired || was&facts != n.marks&facts {
		g.wakeOwners(n, w)
		g.consider(n, w)
	}
	if n.marks.waiting() && !(was.has(seen) && was.waiting()) {
		g.wakeDependents(n, w)
	}
}

// vanish notes that an object is no more. Its feed told of the deletion, or a list lacked it.
func (g *graph) vanish(n *node, w *wakes) {
	g.wakeOwners(n, w)
	g.wakeDependents(n, w)
	g.rewire(n, nil)
	g.unplace(n)
	n.feed, n.space, n.version = nil, clusterScope, 0
	n.marks &= odd
	g.tidy(n)
}

// deny removes an object that a live read did not find, as if a list had lacked the object. Its dependents need evidence from after this moment, so
// that the same response does not count twice.
func (g *graph) deny(key id) {
	g.change(func(w *wakes) {
		n := g.nodes[key]
		if n == nil || !n.marks.has(seen) || !n.feed.typ.local { // an aggregated API server may answer from a cache
			return
		}
		g.denied[n] = g.clock.Now()
		g.vanish(n, w)
	})
}

// depart notes that a feed told of the deletion of an object, which must not be seen. A view of another API that is withdrawn does not hide what the API
// server's own type told.
func (g *graph) depart(n *node, f *feed, version uint64) {
	if g.gone[n].typ.local && !f.typ.local {
		return
	}
	g.gone[n] = departure{g.clock.Now(), f.typ, version}
	g.tidy(n)
}

// goneAs is when the feed of the kind that a reference names told of the deletion of its owner; zero: it did not. Other servers may show one object
// under the UID of another, or give a UID twice.
func (g *graph) goneAs(n *node, kind writtenKind) time.Time {
	d, ok := g.gone[n]
	if group, parsed := groupOf(kind.apiVersion); !ok || !parsed || !d.typ.local || group != d.typ.Group || kind.kind != d.typ.kind {
		return time.Time{}
	}
	return d.at
}

// unplace takes a node out of the counts of its feed.
func (g *graph) unplace(n *node) {
	f := n.feed
	f.count--
	if n.marks&epoch == f.epoch {
		f.shown--
	}
}

// nodeOf returns the node of a UID, a new one if there is none.
func (g *graph) nodeOf(uid types.UID, name string) *node {
	key, exact := idOf(uid)
	n := g.nodes[key]
	if n == nil {
		n = &node{uid: key, name: name, space: clusterScope}
		g.nodes[key] = n
		if !exact {
			n.marks = odd
			g.texts[key] = uid
		}
	}
	return n
}

// tidy forgets a node that nothing shows and nothing refers to.
func (g *graph) tidy(n *node) {
	if n.marks.has(seen) || n.dependents != nil {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.texts, n.uid)
	delete(g.gone, n)
	delete(g.denied, n)
}

// meet is called when a feed shows an object for the first time. Others may refer to it already, and not all of them may mean it.
func (g *graph) meet(n *node, w *wakes) {
	for e := n.dependents; e != nil; e = e.after {
		if d := g.doubt(e); d == mismatched || d == elsewhere {
			w.object(e.dependent)
		}
	}
}

// consider wakes an object that there may be something to do about.
func (g *graph) consider(n *node, w *wakes) {
	switch {
	case n.marks.finishing():
		w.owner(n)
	case g.doubted(n):
		w.object(n)
	}
}

// wakeOwners wakes the owners of a node that are being deleted: what they wait for may have changed.
func (g *graph) wakeOwners(n *node, w *wakes) {
	for e := n.refs; e != nil; e = e.next {
		if e.owner.marks.finishing() {
			w.owner(e.owner)
		}
	}
}

func (g *graph) wakeDependents(n *node, w *wakes) {
	for e := n.dependents; e != nil; e = e.after {
		w.object(e.dependent)
	}
}

// collect wakes the dependents of an owner.
func (g *graph) collect(key id) {
	g.change(func(w *wakes) {
		if n := g.nodes[key]; n != nil {
			g.wakeDependents(n, w)
		}
	})
}
