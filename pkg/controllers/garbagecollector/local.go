package garbagecollector

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/discovery"
)

// automanaged is the label of the APIServices that the API server keeps for what it serves itself.
const automanaged = "kube-aggregator.kubernetes.io/automanaged" // k8s.io/kube-aggregator v0.37, autoregister.AutoRegisterManagedLabel

// isLocal reports whether the API server itself serves a type, in all its versions, and whether something says who does. The APIServices of those group
// versions are kept by the API server and labelled; where there are none, a CustomResourceDefinition will do. The lock is held.
func (t *knownTypes) isLocal(k *knownType) (local, told bool) {
	if k.cached && !closed(t.known) {
		return true, true // most likely
	}
	local = len(k.versions) > 0
	for _, version := range k.versions {
		own, ok := t.services[discovery.ServiceOf(schema.GroupVersion{Group: k.Group, Version: version})]
		_, defined := t.defined[k.GroupResource().String()]
		switch {
		case ok && !own:
			return false, true
		case !ok && !defined:
			local = false
		}
	}
	return local, local
}

// locate finds out anew whether a type is local, and reports whether that has changed. What says so goes with the type, and may be heard of before the
// last of its objects is: a feed that comes from the API server itself does so until something says otherwise, or it begins anew. The lock is held.
func (t *knownTypes) locate(k *knownType) (moved bool) {
	local, told := t.isLocal(k)
	moved, k.local = k.local != local, local
	if k.feed == nil {
		return moved
	}
	typ := k.objectType()
	typ.local = local || !told && k.feed.typ.local
	if k.feed.typ != typ {
		if _, err := t.deps.Graph.feed(typ); err != nil {
			k.err = err
		}
	}
	return moved
}

// relocate finds out anew which types are local.
func (t *knownTypes) relocate() {
	t.lock.Lock()
	moved := false
	for _, k := range t.types {
		moved = t.locate(k) || moved
	}
	moved = moved && !t.latest.sent.IsZero() && t.compile(t.latest.sent, t.latest.failing)
	t.lock.Unlock()
	if moved {
		t.changed()
	}
}

// storeOf is where the objects of a type go: into the graph, and those that say which types there are wake discovery, too.
func (t *knownTypes) storeOf(r schema.GroupResource, f *feed) caches.FeedStore {
	switch r {
	case crds:
		return tapped{feed: f, resource: r, types: t, saw: t.sawDefinition, listed: t.listedDefinitions, names: func(k *knownType) string { return k.GroupResource().String() }}
	case apiServices:
		return tapped{feed: f, resource: r, types: t, saw: t.sawService, listed: t.listedServices, label: automanaged,
			names: func(k *knownType) string { return discovery.ServiceOf(k.GroupVersion()) }}
	}
	return f
}

// tapped is a feed of what says which types there are.
type tapped struct {
	*feed
	resource schema.GroupResource // that of the feed is guarded by the lock of the graph
	types    *knownTypes
	saw      func(obj metav1.Object, gone bool) stir
	listed   func(names map[string]bool) stir // those that it has not are gone
	label    string                           // that is kept for saw; empty: none
	names    func(*knownType) string          // the object that is about a type
}

// Add implements cache.ReflectorStore.
func (s tapped) Add(obj any) error {
	err := s.feed.Add(obj)
	s.tell(obj, false)
	return err
}

// Update implements cache.ReflectorStore.
func (s tapped) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s tapped) Delete(obj any) error {
	err := s.feed.Delete(obj)
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	s.tell(obj, true)
	return err
}

func (s tapped) tell(obj any, gone bool) {
	if m, ok := obj.(metav1.Object); ok {
		what := s.saw(m, gone)
		s.types.relocate()
		s.types.wake(what)
		s.types.hurry(map[string]bool{m.GetName(): true}, s.names)
	}
}

// Replace implements cache.ReflectorStore.
func (s tapped) Replace(list []any, version string) error {
	if err := s.feed.Replace(list, version); err != nil {
		return err
	}
	names, most := map[string]bool{}, calm
	for _, obj := range list {
		if m, ok := obj.(metav1.Object); ok {
			names[m.GetName()] = true
			most = max(most, s.saw(m, false))
		}
	}
	most = max(most, s.listed(names))
	s.types.relocate()
	if most == changed && !s.types.wasListed(s.resource) { // discovery has just been asked
		most = filled
	}
	s.types.wake(most)
	s.types.hurry(names, s.names)
	return nil
}

// Transformer implements cache.TransformingStore.
func (s tapped) Transformer() cache.TransformFunc {
	drop := s.feed.Transformer()
	if s.label == "" {
		return drop
	}
	return func(obj any) (any, error) {
		m, ok := obj.(metav1.Object)
		if !ok {
			return obj, nil
		}
		value, ok := m.GetLabels()[s.label]
		out, err := drop(obj)
		if ok {
			m.SetLabels(map[string]string{s.label: value})
		}
		return out, err
	}
}

// sawDefinition notes a CustomResourceDefinition. Its name is that of its type.
func (t *knownTypes) sawDefinition(crd metav1.Object, gone bool) stir {
	name := crd.GetName()
	t.lock.Lock()
	defer t.lock.Unlock()
	k := t.types[schema.ParseGroupResource(name)]
	served := k != nil && k.served
	what := changed
	_, met := t.defined[name]
	if gone || !met && !served {
		what = newcomer
	}
	switch {
	case gone:
		delete(t.defined, name)
	case !met:
		t.defined[name] = t.deps.Clock.Now()
	}
	if k != nil {
		k.emptied = gone
	}
	return what
}

// listedDefinitions forgets definitions that are gone.
func (t *knownTypes) listedDefinitions(names map[string]bool) stir {
	t.lock.Lock()
	defer t.lock.Unlock()
	for name := range t.defined {
		if k := t.types[schema.ParseGroupResource(name)]; k != nil && !names[name] {
			k.emptied = true
		}
	}
	return keepOnly(t.defined, names)
}

// sawService notes an APIService. Its name is that of its group version.
func (t *knownTypes) sawService(service metav1.Object, gone bool) stir {
	name := service.GetName()
	_, local := service.GetLabels()[automanaged]
	t.lock.Lock()
	defer t.lock.Unlock()
	_, met := t.services[name]
	what := changed
	if gone || !met && closed(t.known) {
		what = newcomer
	}
	if gone {
		delete(t.services, name)
	} else {
		t.services[name] = local
	}
	return what
}

// listedServices forgets APIServices that are gone. From the first list on it is known which types are local.
func (t *knownTypes) listedServices(names map[string]bool) stir {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.servicesKnown()
	return keepOnly(t.services, names)
}

// wasListed reports whether a list of a type has come before.
func (t *knownTypes) wasListed(r schema.GroupResource) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.types[r] != nil && t.types[r].whole
}

// keepOnly forgets all other names, and tells whether there were any.
func keepOnly[T any](known map[string]T, names map[string]bool) stir {
	before := len(known)
	if maps.DeleteFunc(known, func(name string, _ T) bool { return !names[name] }); len(known) < before {
		return newcomer
	}
	return calm
}

// listing is the source of a type that has not brought a list yet, if there is one.
func (k *knownType) listing() []*caches.Feed {
	if k.phase != listing || k.source == nil {
		return nil
	}
	return []*caches.Feed{k.source}
}

// hurry has the feeds of types try again that something has been heard about: whatever was in their way may be gone.
func (t *knownTypes) hurry(about map[string]bool, names func(*knownType) string) {
	var feeds []*caches.Feed
	t.lock.Lock()
	for _, k := range t.types {
		if k.phase == listing && about[names(k)] {
			feeds = append(feeds, k.listing()...)
		}
	}
	t.lock.Unlock()
	for _, f := range feeds {
		f.Hurry()
	}
}
