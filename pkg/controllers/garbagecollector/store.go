package garbagecollector

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// typeStore stores the objects of one type in the graph. It is the store of a feed or the handler of an informer, and
// is called by one goroutine at a time.
type typeStore struct {
	graph  *graph
	typ    objectType
	count  int            // objects in the graph
	names  map[string]int // objects by name; nil except for CustomResourceDefinitions
	notify func()         // called after each event and list
}

var _ cache.TransformingStore = (*typeStore)(nil)

// storeFor returns the store of a type and updates the type.
func (g *graph) storeFor(typ objectType) *typeStore {
	g.lock.Lock()
	defer g.lock.Unlock()
	s := g.stores[typ.GroupResource]
	if s == nil {
		s = &typeStore{graph: g, notify: func() {}}
		if typ.GroupResource == crds {
			s.names = map[string]int{}
		}
		g.stores[typ.GroupResource] = s
	}
	s.typ = typ
	return s
}

// dropStore drops a type with its objects. The feed must have stopped. A forgotten object may still exist.
func (g *graph) dropStore(s *typeStore) {
	g.changeAndEnqueue(func(keys *queueKeys) {
		g.removeObjectsLocked(s, keys, func(*node) bool { return true })
		delete(g.stores, s.typ.GroupResource)
	})
}

func (g *graph) removeObjectsLocked(s *typeStore, keys *queueKeys, selected func(*node) bool) {
	if s.count == 0 {
		return
	}
	for _, n := range g.nodes {
		if n.store == s && selected(n) {
			g.removeObjectLocked(n, keys)
		}
	}
}

// definitions returns the names of the CustomResourceDefinitions, with the number of objects of each name. A list
// stores an object that was created again before it removes the old object.
func (g *graph) definitions() map[string]int {
	g.lock.Lock()
	defer g.lock.Unlock()
	if s := g.stores[crds]; s != nil {
		return maps.Clone(s.names)
	}
	return nil
}

// Add implements cache.ReflectorStore.
func (s *typeStore) Add(obj any) error {
	s.graph.changeAndEnqueue(func(keys *queueKeys) { s.graph.storeObjectLocked(s, obj.(metav1.Object), keys) })
	s.notify()
	return nil
}

// Update implements cache.ReflectorStore.
func (s *typeStore) Update(obj any) error { return s.Add(obj) }

// Changed is the update handler of informers. Informers report an object that was deleted and created again as an
// update.
func (s *typeStore) Changed(old, new metav1.Object) {
	s.graph.changeAndEnqueue(func(keys *queueKeys) {
		if old.GetUID() != new.GetUID() {
			s.removeDeletedLocked(old, false, keys)
		}
		s.graph.storeObjectLocked(s, new, keys)
	})
}

// Delete implements cache.ReflectorStore. A tombstone stands for an object that a list lacks. It is not a deletion
// event.
func (s *typeStore) Delete(obj any) error {
	event := true
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj, event = tombstone.Obj, false
	}
	s.graph.changeAndEnqueue(func(keys *queueKeys) { s.removeDeletedLocked(obj.(metav1.Object), event, keys) })
	s.notify()
	return nil
}

func (s *typeStore) removeDeletedLocked(m metav1.Object, event bool, keys *queueKeys) {
	g := s.graph
	key, _ := idOf(m.GetUID())
	n := g.nodes[key]
	if n == nil || n.store != nil && n.store != s {
		return
	}
	switch {
	case n.store != nil:
		g.removeObjectLocked(n, keys)
	case event: // of an object that was created and deleted between two lists
		keys.addDependents(n)
	}
	if event && n.dependents != nil && (s.typ.local || !g.deletions[n].typ.local) {
		g.deletions[n] = deletionEvent{g.clock.Now(), s.typ}
	}
}

// Replace implements cache.ReflectorStore. It stores a list object by object, so that events of other types do not
// wait for the whole list.
func (s *typeStore) Replace(list []any, _ string) error {
	g, listed := s.graph, make(map[id]bool, len(list))
	for _, obj := range list {
		m := obj.(metav1.Object)
		key, _ := idOf(m.GetUID())
		listed[key] = true
		g.changeAndEnqueue(func(keys *queueKeys) { g.storeObjectLocked(s, m, keys) })
	}
	g.changeAndEnqueue(func(keys *queueKeys) {
		for key := range listed {
			if n := g.nodes[key]; n == nil || n.store != s {
				delete(listed, key) // another type has the object
			}
		}
		if s.count > len(listed) { // the list lacks objects of the graph
			g.removeObjectsLocked(s, keys, func(n *node) bool { return !listed[n.uid] })
		}
	})
	s.notify()
	return nil
}

// Resync implements cache.ReflectorStore. The collector looks through the whole graph instead.
func (s *typeStore) Resync() error { return nil }

// Transformer implements cache.TransformingStore. It drops metadata that the graph does not keep, so that a long list
// takes less memory during its transfer.
func (s *typeStore) Transformer() cache.TransformFunc {
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
func (s *typeStore) objectCount() int {
	s.graph.lock.Lock()
	defer s.graph.lock.Unlock()
	return s.count
}
