package garbagecollector

import (
	"errors"
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// objectType is what the graph knows of a type.
type objectType struct {
	schema.GroupResource
	kind  string
	local bool // served by the API server itself, not by one behind the aggregator
}

// feed is where the objects of one type come into the graph. It is the store of a reflector, or told by the handlers of a cache; either way by
// one goroutine at a time.
type feed struct {
	graph  *graph
	typ    objectType
	number uint16
	epoch  marks // epoch, or 0
	count  int   // of its objects that are seen
	shown  int   // of these, since the epoch began
}

var _ cache.TransformingStore = (*feed)(nil)

var errTooManyTypes = errors.New("more types than the graph can number")

// feed returns the feed of a type, a new one if it has none. What it then knows of the type replaces what it knew.
func (g *graph) feed(typ objectType) (*feed, error) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if f := g.byType[typ.GroupResource]; f != nil {
		f.typ = typ
		return f, nil
	}
	f := &feed{graph: g, typ: typ}
	switch last := len(g.free) - 1; {
	case last >= 0:
		f.number, g.free = g.free[last], g.free[:last]
		g.feeds[f.number] = f
	case len(g.feeds) > math.MaxUint16:
		return nil, errTooManyTypes
	default:
		f.number = uint16(len(g.feeds))
		g.feeds = append(g.feeds, f)
	}
	g.byType[typ.GroupResource] = f
	return f, nil
}

// forget drops a type with its objects. That they are no longer seen says nothing about whether they exist. What the feed is still told changes
// nothing.
func (g *graph) forget(f *feed) {
	g.change(func(w *wakes) {
		if !g.has(f) {
			return
		}
		g.sweep(f, w, func(*node) bool { return true })
		g.feeds[f.number] = nil
		g.free = append(g.free, f.number)
		delete(g.byType, f.typ.GroupResource)
	})
}

// has reports whether a feed has not been forgotten. Its number may be another's by now.
func (g *graph) has(f *feed) bool { return g.feeds[f.number] == f }

// sweep has the objects of a feed vanish that are out.
func (g *graph) sweep(f *feed, w *wakes, out func(*node) bool) {
	if f.count == 0 {
		return
	}
	for _, n := range g.nodes {
		if n.feed == f.number && out(n) {
			g.vanish(n, w)
		}
	}
}

// holdsOrphans reports whether owners that are to leave orphans must not go because of a feed: objects of it refer to them.
func (g *graph) holdsOrphans(f *feed) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.has(f) {
		return false
	}
	for _, n := range g.nodes {
		if n.feed != f.number {
			continue
		}
		for e := n.refs; e != nil; e = e.next {
			if e.owner.marks.has(leavesOrphans) {
				return true
			}
		}
	}
	return false
}

// leavesOrphans are the marks of an owner that is deleted so.
const leavesOrphans = seen | terminating | orphaning

func notAnObject(obj any) error { return fmt.Errorf("a feed was given a %T, which is no object", obj) }

// put notes an object, from a list or an event. The lock is held.
func (f *feed) put(m metav1.Object, listed bool, w *wakes) {
	if !f.graph.has(f) {
		return
	}
	if f.graph.put(f, m, listed, w) {
		f.shown++
	}
}

// Add notes an object that has come.
func (f *feed) Add(obj any) error {
	m, ok := obj.(metav1.Object)
	if !ok {
		return notAnObject(obj)
	}
	f.graph.change(func(w *wakes) { f.put(m, false, w) })
	return nil
}

// Update notes that an object has changed.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Changed is Update for caches, which tell of two objects that had a name one after the other as of one that has changed.
func (f *feed) Changed(old, new metav1.Object) {
	f.graph.change(func(w *wakes) {
		if old.GetUID() != new.GetUID() {
			f.remove(old, false, w)
		}
		f.put(new, false, w)
	})
}

// Delete notes that an object was deleted. A tombstone says only that a list no longer has it.
func (f *feed) Delete(obj any) error {
	event := true
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj, event = tombstone.Obj, false
	}
	m, ok := obj.(metav1.Object)
	if !ok {
		return notAnObject(obj)
	}
	f.graph.change(func(w *wakes) { f.remove(m, event, w) })
	return nil
}

func (f *feed) remove(m metav1.Object, event bool, w *wakes) {
	g := f.graph
	key, _ := idOf(m.GetUID())
	n := g.nodes[key]
	if n == nil || !g.has(f) || n.feed != 0 && n.feed != f.number {
		return
	}
	switch {
	case n.feed != 0:
		g.vanish(n, w)
	case event: // it came and went between two sights; that it was deleted is known all the same
		g.wakeDependents(n, w)
	}
	if event {
		g.depart(n, f, numberOf(m.GetResourceVersion()))
	}
}

// Replace notes what a list has shown, and that what it has not shown is no more.
func (f *feed) Replace(list []any, _ string) error {
	for _, obj := range list {
		if _, ok := obj.(metav1.Object); !ok {
			return notAnObject(obj)
		}
	}
	g := f.graph
	g.change(func(*wakes) {
		f.epoch ^= epoch
		f.shown = 0
	})
	for _, obj := range list { // each for itself, so that nobody waits for a long list
		g.change(func(w *wakes) { f.put(obj.(metav1.Object), true, w) })
	}
	g.change(func(w *wakes) {
		if f.count > f.shown && g.has(f) { // as a rule they are equal, and then there is no need for a walk over all nodes
			g.sweep(f, w, func(n *node) bool { return n.marks&epoch != f.epoch })
		}
	})
	return nil
}

// Resync does nothing: what could be missed is looked for in the whole graph.
func (f *feed) Resync() error { return nil }

// Transformer drops, on arrival, what the graph does not keep, so that a long list takes less room while it comes in.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if m, ok := obj.(metav1.Object); ok {
			m.SetLabels(nil)
			m.SetAnnotations(nil)
			m.SetManagedFields(nil)
		}
		return obj, nil
	}
}

// Count is how many objects of the type are seen.
func (f *feed) Count() int {
	f.graph.lock.Lock()
	defer f.graph.lock.Unlock()
	return f.count
}
