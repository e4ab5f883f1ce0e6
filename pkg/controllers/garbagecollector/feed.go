package garbagecollector

import (
	"fmt"

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
	graph   *graph
	typ     objectType
	epoch   marks  // epoch, or 0
	count   int    // of its objects that are seen
	shown   int    // of these, since the epoch began
	changed func() // called after each event and list; may be nil
}

var _ cache.TransformingStore = (*feed)(nil)

// feed returns the feed of a type and updates the type.
func (g *graph) feed(typ objectType) *feed {
	g.lock.Lock()
	defer g.lock.Unlock()
	f := g.feeds[typ.GroupResource]
	if f == nil {
		f = &feed{graph: g}
		g.feeds[typ.GroupResource] = f
	}
	f.typ = typ
	return f
}

// forget drops a type with its objects. That they are no longer seen says nothing about whether they exist. What the feed is still told changes
// nothing.
func (g *graph) forget(f *feed) {
	g.change(func(w *wakes) {
		g.sweep(f, w, func(*node) bool { return true })
		delete(g.feeds, f.typ.GroupResource)
	})
}

// sweep has the objects of a feed vanish that are out.
func (g *graph) sweep(f *feed, w *wakes, out func(*node) bool) {
	if f.count == 0 {
		return
	}
	for _, n := range g.nodes {
		if n.feed == f && out(n) {
			g.vanish(n, w)
		}
	}
}

// namesOf returns the names of the objects of a type.
func (g *graph) namesOf(r schema.GroupResource) map[string]bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	names := map[string]bool{}
	if f := g.feeds[r]; f != nil && f.count > 0 {
		for _, n := range g.nodes {
			if n.feed == f {
				names[n.name] = true
			}
		}
	}
	return names
}

func notAnObject(obj any) error { return fmt.Errorf("a feed was given a %T, which is no object", obj) }

// Add notes an object that has come.
func (f *feed) Add(obj any) error {
	m, ok := obj.(metav1.Object)
	if !ok {
		return notAnObject(obj)
	}
	f.graph.change(func(w *wakes) { f.graph.put(f, m, false, w) })
	f.notify()
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
		f.graph.put(f, new, false, w)
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
	f.notify()
	return nil
}

func (f *feed) notify() {
	if f.changed != nil {
		f.changed()
	}
}

func (f *feed) remove(m metav1.Object, event bool, w *wakes) {
	g := f.graph
	key, _ := idOf(m.GetUID())
	n := g.nodes[key]
	if n == nil || n.feed != nil && n.feed != f {
		return
	}
	switch {
	case n.feed != nil:
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
		g.change(func(w *wakes) { g.put(f, obj.(metav1.Object), true, w) })
	}
	g.change(func(w *wakes) {
		if f.count > f.shown { // as a rule they are equal, and then there is no need for a walk over all nodes
			g.sweep(f, w, func(n *node) bool { return n.marks&epoch != f.epoch })
		}
	})
	f.notify()
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
