package garbagecollector

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// feed stores the objects of one type in the graph. It is the store of a reflector or the handler of an informer, and
// is called by one goroutine at a time.
type feed struct {
	graph  *graph
	typ    objectType
	count  int            // objects in the graph
	names  map[string]int // objects by name; nil except for CustomResourceDefinitions
	notify func()         // called after each event and list
}

var _ cache.TransformingStore = (*feed)(nil)

// feed returns the feed of a type and updates the type.
func (g *graph) feed(typ objectType) *feed {
	g.lock.Lock()
	defer g.lock.Unlock()
	f := g.feeds[typ.GroupResource]
	if f == nil {
		f = &feed{graph: g, notify: func() {}}
		if typ.GroupResource == crds {
			f.names = map[string]int{}
		}
		g.feeds[typ.GroupResource] = f
	}
	f.typ = typ
	return f
}

// dropFeed drops a type with its objects. The source of the feed must have stopped. A forgotten object may still exist.
func (g *graph) dropFeed(f *feed) {
	g.changeAndEnqueue(func(keys *queueKeys) {
		g.removeObjects(f, keys, func(*node) bool { return true })
		delete(g.feeds, f.typ.GroupResource)
	})
}

func (g *graph) removeObjects(f *feed, keys *queueKeys, selected func(*node) bool) {
	if f.count == 0 {
		return
	}
	for _, n := range g.nodes {
		if n.feed == f && selected(n) {
			g.removeObject(n, keys)
		}
	}
}

// definitions returns the names of the CustomResourceDefinitions, with the number of objects of each name. A list
// stores an object that was created again before it removes the old object.
func (g *graph) definitions() map[string]int {
	g.lock.Lock()
	defer g.lock.Unlock()
	if f := g.feeds[crds]; f != nil {
		return maps.Clone(f.names)
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (f *feed) Add(obj any) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	f.graph.changeAndEnqueue(func(keys *queueKeys) { f.graph.storeObject(f, m, keys) })
	f.notify()
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed) Update(obj any) error { return f.Add(obj) }

// Changed is the update handler of informers. Informers report an object that was deleted and created again as an
// update.
func (f *feed) Changed(old, new metav1.Object) {
	f.graph.changeAndEnqueue(func(keys *queueKeys) {
		if old.GetUID() != new.GetUID() {
			f.removeDeleted(old, false, keys)
		}
		f.graph.storeObject(f, new, keys)
	})
}

// Delete implements cache.ReflectorStore. A tombstone stands for an object that a list lacks. It is not a deletion
// event.
func (f *feed) Delete(obj any) error {
	event := true
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj, event = tombstone.Obj, false
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	f.graph.changeAndEnqueue(func(keys *queueKeys) { f.removeDeleted(m, event, keys) })
	f.notify()
	return nil
}

func (f *feed) removeDeleted(m metav1.Object, event bool, keys *queueKeys) {
	g := f.graph
	key, _ := idOf(m.GetUID())
	n := g.nodes[key]
	if n == nil || n.feed != nil && n.feed != f {
		return
	}
	switch {
	case n.feed != nil:
		g.removeObject(n, keys)
	case event: // of an object that was created and deleted between two lists
		g.enqueueDependents(n, keys)
	}
	if event && n.dependents != nil && (f.typ.local || !g.deletions[n].typ.local) {
		g.deletions[n] = deletionEvent{g.clock.Now(), f.typ}
	}
}

// Replace implements cache.ReflectorStore. It stores a list object by object, so that events of other types do not
// wait for the whole list.
func (f *feed) Replace(list []any, _ string) error {
	g, listed := f.graph, make(map[id]bool, len(list))
	for _, obj := range list {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		key, _ := idOf(m.GetUID())
		listed[key] = true
		g.changeAndEnqueue(func(keys *queueKeys) { g.storeObject(f, m, keys) })
	}
	g.changeAndEnqueue(func(keys *queueKeys) {
		for key := range listed {
			if n := g.nodes[key]; n == nil || n.feed != f {
				delete(listed, key) // another type has the object
			}
		}
		if f.count > len(listed) { // the list lacks objects of the graph
			g.removeObjects(f, keys, func(n *node) bool { return !listed[n.uid] })
		}
	})
	f.notify()
	return nil
}

// Resync implements cache.ReflectorStore. The collector looks through the whole graph instead.
func (f *feed) Resync() error { return nil }

// Transformer implements cache.TransformingStore. It drops metadata that the graph does not keep, so that a long list
// takes less memory during its transfer.
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

// objectCount returns the number of objects of the type in the graph.
func (f *feed) objectCount() int {
	f.graph.lock.Lock()
	defer f.graph.lock.Unlock()
	return f.count
}
