package garbagecollector

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controller"
	"minikcm/pkg/controllers/internal/discovery"
)

const (
	// removalDelay is the shortest time between two discoveries without a type after which the feed of the type stops.
	// Until then the feed delivers the last deletion events.
	removalDelay = 2 * time.Second
	// definitionLag is the longest lag of discovery behind a CustomResourceDefinition. A definition without
	// accepted names, or without served versions, is never discovered.
	definitionLag = time.Minute
	// notifyDelay collects changes into one call of changed.
	notifyDelay = 250 * time.Millisecond
	// informerTimeout is the longest wait for the informers of other controllers, and headStart the time that those
	// controllers have for their first requests. Discovery and the first lists of all types would delay these
	// requests.
	informerTimeout = 2 * time.Second
	headStart       = 100 * time.Millisecond
)

var (
	crds        = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
)

// defaultIgnored are types of many short-lived objects without owners and dependents.
var defaultIgnored = map[schema.GroupResource]bool{{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true}

// unstored are groups whose objects are computed on request, so that no object has an owner. Servers of these groups
// often fail.
var unstored = map[string]bool{"metrics.k8s.io": true, "custom.metrics.k8s.io": true, "external.metrics.k8s.io": true}

// phase is the state of the watch of a type.
type phase string

const (
	listing phase = "listing" // first list, or list after a lost watch
	current phase = "current" // listed and watched
	away    phase = "away"    // the latest discovery lacks the type
	retired phase = "retired" // no longer served or watched, but the objects may exist
)

// typeState is a snapshot of a type.
type typeState struct {
	apiType
	phase phase      // empty if the type is not watched
	since time.Time  // of the phase
	err   error      // latest error of the watch since the latest list or accepted watch
	store *typeStore // nil if the type is not watched
}

// isServed reports whether the type is watched and discovered.
func (s typeState) isServed() bool { return s.phase == listing || s.phase == current }

// mayDependOn reports whether objects of the type can have owners of another type: a cluster-scoped object has no
// namespaced owners.
func (s typeState) mayDependOn(owner apiType) bool { return s.namespaced || !owner.namespaced }

// knownType is an entry of the table of types.
type knownType struct {
	typeState
	cached bool         // the objects come from an informer
	feed   *caches.Feed // fills the store; used by the discovery goroutine only
	logged bool         // err has been logged
}

// knownTypes is the table of types. Every discovery updates the table and the feeds of its types. One goroutine,
// runDiscovery, sends discoveries and starts and stops feeds.
type knownTypes struct {
	controller.Base
	graph      *graph
	ignored    map[schema.GroupResource]bool
	changed    func() // called without locks after a type has changed or was listed, and after periodic discoveries
	syncErrors prometheus.Counter

	checked   bool      // ignored types have been compared with a discovery
	notified  time.Time // of the last call of changed
	feeds     *caches.Feeds
	discovery discovery.Client
	wake      chan struct{}     // holds an element if the next discovery may be due earlier
	notifying atomic.Bool       // changed is about to be called
	informers []<-chan struct{} // closed after the first list

	lock    sync.Mutex
	types   map[schema.GroupResource]*knownType
	latest  kindIndex
	defined map[string]time.Time // names of CustomResourceDefinitions, with the time of their first event
	event   time.Time            // latest event of a CustomResourceDefinition or APIService
	awaited time.Time            // a caller waits for a discovery that is sent later
}

// newTypes returns an empty table. The table is filled after the start of the caches.
func newTypes(b controller.Base, g *graph, ignored map[schema.GroupResource]bool, changed func(), syncErrors prometheus.Counter) (*knownTypes, error) {
	t := &knownTypes{
		Base: b, graph: g, ignored: ignored, changed: changed, syncErrors: syncErrors, feeds: b.Caches.Feeds(), wake: make(chan struct{}, 1),
		types: map[schema.GroupResource]*knownType{}, defined: map[string]time.Time{},
	}
	var err error
	if t.discovery, err = t.feeds.Discovery(); err != nil {
		return nil, err
	}
	b.Caches.Observe(t.observeInformer)
	b.Caches.RunAlongside(t.runDiscovery)
	return t, nil
}

// runDiscovery discovers types until ctx ends, and returns when all feeds have ended.
func (t *knownTypes) runDiscovery(ctx context.Context) {
	t.awaitInformers(ctx)
	t.sendDiscoveries(ctx)
	for _, k := range t.types {
		k.stopFeed()
	}
}

func (t *knownTypes) awaitInformers(ctx context.Context) {
	timeout := t.Clock.After(informerTimeout)
	for _, synced := range t.informers {
		select {
		case <-synced:
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
	timing.Sleep(ctx, t.Clock, headStart)
}

// notifyLater calls changed once for all changes within notifyDelay.
func (t *knownTypes) notifyLater() {
	if t.notifying.CompareAndSwap(false, true) {
		time.AfterFunc(notifyDelay, func() {
			t.notifying.Store(false)
			t.changed()
		})
	}
}

// wakeDiscovery lets the discovery goroutine compute the time of the next discovery again.
func (t *knownTypes) wakeDiscovery() { timing.Signal(t.wake) }

// state returns the state of a type. It is zero for an unknown type.
func (t *knownTypes) state(r schema.GroupResource) typeState {
	t.lock.Lock()
	defer t.lock.Unlock()
	if k := t.types[r]; k != nil {
		return k.typeState
	}
	return typeState{}
}

// allStates returns the states of all types, except those that discovery lacks and whose CustomResourceDefinition has
// been deleted: the API server deletes their objects first.
func (t *knownTypes) allStates() []typeState {
	t.lock.Lock()
	defer t.lock.Unlock()
	all := make([]typeState, 0, len(t.types))
	for r, k := range t.types {
		if k.phase != away || !k.local || t.isLocalLocked(r) {
			all = append(all, k.typeState)
		}
	}
	return all
}

// kindIndex returns the types of the latest discovery. The index is never modified.
func (t *knownTypes) kindIndex() kindIndex {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.latest
}

// unknownGroups returns the groups, sorted, that may have undiscovered types with owned objects.
func (t *knownTypes) unknownGroups() []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	groups, watched := map[string]bool{}, map[string]bool{}
	for r, k := range t.types {
		watched[r.Group] = watched[r.Group] || k.store != nil
	}
	for name, since := range t.defined { // another API server may serve the type already
		r := schema.ParseGroupResource(name)
		if k := t.types[r]; (k == nil || k.phase == retired) && !t.ignored[r] && t.Clock.Since(since) < definitionLag {
			groups[r.Group] = true
		}
	}
	for group := range t.latest.failing {
		if isWatched, known := watched[group]; (isWatched || !known) && !unstored[group] {
			groups[group] = true
		}
	}
	return slices.Sorted(maps.Keys(groups))
}

// isWanted selects types that can be owners and types that can be watched.
func isWanted(api metav1.APIResource) bool {
	has := func(verb string) bool { return slices.Contains(api.Verbs, verb) }
	return has("get") || has("list") && has("watch") && has("delete")
}

// refreshTypes sends a discovery and updates the table. It reports whether nothing is left to do.
func (t *knownTypes) refreshTypes(ctx context.Context) (settled bool) {
	result := discovery.FetchTypes(ctx, t.discovery, t.Clock, isWanted)
	if ctx.Err() != nil {
		return false
	}
	if result.Err != nil {
		t.syncErrors.Inc()
		klog.FromContext(ctx).V(2).Info("Discovery is incomplete", "controller", Name, "reason", result.Err)
		if len(result.Failing) == 0 {
			return false // any type may be missing
		}
	}
	for r := range t.ignored {
		if result.Complete() && !t.checked && !result.Has(r) && !defaultIgnored[r] {
			klog.FromContext(ctx).Info("Ignored type is not served and may be misspelt", "controller", Name, "resource", r.String())
		}
	}
	t.checked = t.checked || result.Complete()
	return t.updateTypes(ctx, result) && result.Complete()
}

// updateTypes makes the table and the feeds follow a discovery. Types of failing groups stay as before. It reports
// whether no type is about to be dropped and every feed runs.
func (t *knownTypes) updateTypes(ctx context.Context, result discovery.Result) (settled bool) {
	now, failing := t.Clock.Now(), map[string]bool{}
	for _, f := range result.Failing {
		failing[f.Group] = true
	}
	t.lock.Lock()
	t.updateDefinedLocked(now)
	start, unwatched := t.addTypesLocked(result, failing, now)
	retire, gone, settled := t.removeTypesLocked(result, failing, now)
	drop := slices.Concat(unwatched, gone)
	// An unchanged discovery after a deletion event proves that a kind is gone.
	changed := t.updateIndexLocked(result.Sent, failing) || now.Sub(t.event) < time.Minute || now.Sub(t.notified) >= discoveryInterval/2
	t.lock.Unlock()
	for _, k := range retire {
		k.stopFeed()
	}
	for _, k := range drop {
		k.stopFeed()
		t.graph.dropStore(k.store)
	}
	for _, k := range start {
		settled = t.startFeed(ctx, k) && settled
	}
	if changed || len(drop) > 0 || !settled {
		t.notified = now
		t.notifyLater()
	}
	return settled
}

// addTypesLocked adds and updates the discovered types. It returns the types whose feed has to start and those
// that are no longer watched.
func (t *knownTypes) addTypesLocked(result discovery.Result, failing map[string]bool, now time.Time) (start, unwatched []*knownType) {
	for _, a := range result.Types {
		r := a.GroupResource()
		k := t.types[r]
		if k == nil {
			k = &knownType{}
			t.types[r] = k
		}
		moved := k.feed != nil && k.Version != a.Version
		if moved && failing[a.Group] && k.isServed() {
			continue // perhaps only the preferred version has failed
		}
		k.kind, k.namespaced, k.versions = a.Kind, a.Namespaced, result.Versions(r)
		// The definition may be deleted before the last deletion events of objects arrive.
		k.local = k.local || t.isLocalLocked(r)
		if k.cached {
			continue
		}
		k.GroupVersionResource = a.GroupVersionResource
		watched := a.List && a.Watch && a.Delete && !t.ignored[r]
		switch {
		case !watched && k.store != nil:
			unwatched = append(unwatched, k)
			t.types[r] = &knownType{typeState: typeState{apiType: k.apiType}}
		case watched:
			k.store = t.graph.storeFor(k.objectType())
			if k.feed == nil || moved || !k.isServed() {
				start = append(start, k)
				if k.phase != listing { // before updateIndexLocked, which leaves out types that are not served
					k.phase, k.since = listing, now
				}
			}
		}
	}
	return start, unwatched
}

// removeTypesLocked updates the types that the discovery lacks. It returns the types to retire, those that are gone,
// and whether no other type is about to be.
func (t *knownTypes) removeTypesLocked(result discovery.Result, failing map[string]bool, now time.Time) (retire, gone []*knownType, settled bool) {
	settled = true
	for r, k := range t.types {
		delay := removalDelay
		if _, ok := t.defined[r.String()]; ok {
			delay = definitionLag // this API server may not serve the definition yet
		}
		switch {
		case failing[r.Group] || result.Has(r) || k.cached:
		case k.store == nil:
			delete(t.types, r)
		case k.isServed():
			k.phase, k.since, k.err = away, now, nil
			settled = false
		case k.phase == away && now.Sub(k.since) < delay:
			settled = false
		case k.store.objectCount() > 0 && k.local == t.isLocalLocked(r): // no definition has been deleted
			retire = append(retire, k)
			k.phase = retired
		default:
			gone = append(gone, k)
			delete(t.types, r)
		}
	}
	return retire, gone, settled
}

// updateDefinedLocked records the CustomResourceDefinitions in the graph.
func (t *knownTypes) updateDefinedLocked(now time.Time) {
	names := t.graph.definitions()
	maps.DeleteFunc(t.defined, func(name string, _ time.Time) bool { return names[name] == 0 })
	for name := range names {
		if _, ok := t.defined[name]; !ok {
			t.defined[name] = now
		}
	}
}

// isLocalLocked reports whether the API server itself serves a type, from one storage for all versions.
func (t *knownTypes) isLocalLocked(r schema.GroupResource) bool {
	_, defined := t.defined[r.String()]
	return defined || scheme.Scheme.IsGroupRegistered(r.Group) || r.Group == crds.Group || r.Group == apiServices.Group
}

// updateIndexLocked builds the index again, and reports whether the index has changed.
func (t *knownTypes) updateIndexLocked(sent time.Time, failing map[string]bool) (changed bool) {
	var all []apiType
	for _, k := range t.types {
		if len(k.versions) > 0 && (k.store == nil || k.isServed()) {
			all = append(all, k.apiType)
		}
	}
	slices.SortFunc(all, func(a, b apiType) int { return strings.Compare(a.GroupResource().String(), b.GroupResource().String()) })
	next := newKindIndex(sent, failing, all...)
	changed = !reflect.DeepEqual(next.kinds, t.latest.kinds) || !maps.Equal(next.failing, t.latest.failing)
	t.latest = next
	return changed
}

// startFeed starts the feed of a type, in place of an earlier one. It reports whether the feed has started.
func (t *knownTypes) startFeed(ctx context.Context, k *knownType) bool {
	k.stopFeed() // first: the earlier source reports nothing afterwards
	t.lock.Lock()
	defer t.lock.Unlock()
	if k.phase != listing {
		k.phase, k.since = listing, t.Clock.Now()
	}
	if r := k.GroupResource(); r == crds || r == apiServices {
		k.store.notify = t.definitionChanged
	}
	feed, err := t.feeds.Start(ctx, k.GroupVersionResource, k.store, caches.FeedEvents{
		Listed:  func() { t.setPhase(ctx, k, current, nil) },
		Watched: func(err error) { t.setPhase(ctx, k, current, err) },
		Lost:    func(err error) { t.setPhase(ctx, k, listing, err) },
	})
	if err != nil {
		k.err = err
		t.syncErrors.Inc()
		klog.FromContext(ctx).V(2).Info("Cannot start feed", "controller", Name, "resource", k.GroupVersionResource, "reason", err)
		return false
	}
	k.feed = feed
	return true
}

func (k *knownType) stopFeed() {
	if k.feed != nil {
		k.feed.Stop()
		k.feed = nil
	}
}

// setPhase records a list, a request for a watch, or the loss of a watch. A type that is not served stays so.
func (t *knownTypes) setPhase(ctx context.Context, k *knownType, p phase, err error) {
	now := t.Clock.Now()
	t.lock.Lock()
	was, served := k.phase, k.isServed()
	log := err != nil && !k.logged && was == listing && now.Sub(k.since) >= ownerListTimeout
	if served && was != p {
		k.phase, k.since = p, now
	}
	if served && (p == current || err != nil) { // a watch that ends without an error repairs nothing
		k.err = err
	}
	k.logged = log || k.logged && p == listing
	resource := k.GroupVersionResource
	t.lock.Unlock()
	if err != nil {
		t.syncErrors.Inc()
	}
	if log {
		klog.FromContext(ctx).Info("Cannot list type", "controller", Name, "resource", resource, "reason", err)
	}
	if was == listing && p == current {
		t.notifyLater()
	}
}

// observeInformer connects the graph to the informer of a type.
func (t *knownTypes) observeInformer(of caches.CachedType) caches.Handler[metav1.Object] {
	r := of.Resource.GroupResource()
	if t.ignored[r] {
		return caches.Handler[metav1.Object]{}
	}
	k := &knownType{cached: true, typeState: typeState{
		apiType: apiType{GroupVersionResource: of.Resource, kind: of.Kind, local: true},
		phase:   listing,
		since:   t.Clock.Now(),
	}}
	s := t.graph.storeFor(k.objectType())
	k.store = s
	t.lock.Lock()
	t.types[r] = k
	t.informers = append(t.informers, of.Synced)
	t.lock.Unlock()
	t.Caches.RunAlongside(func(ctx context.Context) {
		select {
		case <-of.Synced:
			t.setPhase(ctx, k, current, nil)
		case <-ctx.Done():
		}
	})
	return caches.Handler[metav1.Object]{
		Add:    func(obj metav1.Object) { _ = s.Add(obj) },
		Update: s.Changed,
		Delete: func(obj metav1.Object) { _ = s.Delete(obj) },
		Missed: func(obj metav1.Object) { _ = s.Delete(cache.DeletedFinalStateUnknown{Obj: obj}) },
	}
}
