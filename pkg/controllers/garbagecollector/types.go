package garbagecollector

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/discovery"
)

// Name is the controller's name in --controllers, and in logs.
const Name = "garbage-collector-controller"

const (
	// lingering is how long the feed of a type goes on that discovery no longer shows: what was deleted with the type may still be on its way.
	lingering = 2 * time.Second
	// Least times between two calls of typesDeps.Changed, doubled from the first to the last while there is always something to tell, as at a start.
	minTold = 250 * time.Millisecond
	maxTold = 2 * time.Second
	// heedEvery is how often feeds are listened to.
	heedEvery = time.Second
	// firstPatience is how long the feeds of all other types wait for what says which types are local.
	firstPatience = 2 * time.Second
	// headStart is how long discovery, and the feeds with their hundred lists, leave the API server to the first term of other controllers.
	headStart = 100 * time.Millisecond
	// discoveryPatience is how long discovery may lag behind a new CustomResourceDefinition. A definition without
	// accepted names is never discovered.
	discoveryPatience = time.Minute
)

var (
	crds        = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
)

// defaultIgnored are types that own nothing and are owned by nobody, of which there are many and often new ones.
var defaultIgnored = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// typesDeps are what types work with.
type typesDeps struct {
	Graph   *graph
	Caches  *caches.Caches
	Ignored []schema.GroupResource
	Clock   clock.WithTicker
	// Changed is called, without locks and once in a while only, when the catalogue or a standing has changed in a way by which more may be known
	// of owners that were unknown.
	Changed func()
	// SyncError is called for each discovery and each feed that fails.
	SyncError func()
}

// knownTypes is which types there are, and how far the feed of each has come. It lives as long as the caches do.
type knownTypes struct {
	deps    typesDeps
	ignored map[schema.GroupResource]bool
	// ignoredTold: types to be ignored that are not there have been logged. Only looking knows.
	ignoredTold bool
	feeds       *caches.Feeds
	discovery   discovery.Client
	woken       chan struct{}     // holds one while there is something to be scheduled
	tell        chan struct{}     // holds one while Changed is to be called
	filling     []<-chan struct{} // closed as the caches of other controllers are filled

	servicesKnown func()

	// shifting is held while feeds are begun or ended, from the decision until it is done. It comes before lock.
	shifting sync.Mutex

	lock     sync.Mutex
	types    map[schema.GroupResource]*knownType
	latest   catalogue
	services map[string]bool      // APIServices by name: whether the API server itself serves the group version
	defined  map[string]time.Time // CustomResourceDefinitions by name: when they were first seen
	known    chan struct{}        // closed by servicesKnown, when the APIServices have been listed
	stirred  stir                 // by events that are not scheduled yet
	awaited  time.Time            // somebody has asked for a discovery after this
}

// knownType is one type.
type knownType struct {
	apiType
	standing              // zero if it is not watched
	served   bool         // discovery shows the type
	err      error        // why its feed does not work; nil: it does, or there is none
	logged   bool         // err, or that nothing is heard, has been logged since the feed last worked
	whole    bool         // the type has been listed since it was last away
	lacking  bool         // the type is away, and was not current when it went
	emptied  bool         // its definition has gone, as it does after the last of its objects
	reopened time.Time    // when its watch was last reopened by us
	feed     *feed        // in the graph; nil: the type is not watched
	source   *caches.Feed // what fills feed; nil: nothing at the moment
	turn     int          // the number of source: what an earlier one still tells is not heard
	cached   bool         // its objects come from a cache
}

// typeState is what others see of a type.
type typeState struct {
	apiType
	standing
	err     error // why its feed does not work; nil: it does, or there is none
	lacking bool  // it is away, was not current when it went, and may have left objects behind
	feed    *feed // nil: it is not watched
}

// objects is how many of the type are in the graph.
func (s typeState) objects() int {
	if s.feed == nil {
		return 0
	}
	return s.feed.Count()
}

// blind reports whether the graph may lack objects of the type. Those of one that is away are kept as long as they matter.
func (s typeState) blind() bool {
	return s.watched && (s.phase == listing || s.phase == silent || s.phase == away && s.lacking)
}

// served reports whether there is any use in requests for objects of the type.
func (s typeState) served() bool { return s.phase != "" && s.phase != away }

// mayDependOn reports whether objects of the type can refer to one of a type of owners: what lives in no namespace cannot refer into one.
func (s typeState) mayDependOn(owner apiType) bool { return s.namespaced || !owner.namespaced }

// newTypes returns types that are asked for when the caches are started. It sends no request.
func newTypes(d typesDeps) (*knownTypes, error) {
	t := &knownTypes{
		deps: d, ignored: map[schema.GroupResource]bool{}, feeds: d.Caches.Feeds(),
		woken: make(chan struct{}, 1), tell: make(chan struct{}, 1),
		types: map[schema.GroupResource]*knownType{}, services: map[string]bool{}, defined: map[string]time.Time{}, known: make(chan struct{}),
		latest: newCatalogue(time.Time{}, nil),
	}
	t.servicesKnown = sync.OnceFunc(func() { close(t.known) })
	for _, r := range d.Ignored {
		t.ignored[r] = true
	}
	var err error
	if t.discovery, err = t.feeds.Discovery(); err != nil {
		return nil, err
	}
	d.Caches.Observe(t.observe)
	d.Caches.Alongside(t.run)
	return t, nil
}

// unstored are groups whose objects are measured when somebody asks, and stored nowhere: none can be owned. That their servers do not answer is common.
var unstored = map[string]bool{"metrics.k8s.io": true, "custom.metrics.k8s.io": true, "external.metrics.k8s.io": true}

// unknownGroups are the groups of which discovery cannot tell what is in them, or does not yet, and that may have types whose objects have owners, sorted:
// those that have such a type, and those of which nothing is known.
func (t *knownTypes) unknownGroups() []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	groups, known, watched := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for r, k := range t.types {
		known[r.Group], watched[r.Group] = true, watched[r.Group] || k.watched
	}
	for name, since := range t.defined { // another API server may have it already, with objects
		r := schema.ParseGroupResource(name)
		if k := t.types[r]; (k == nil || !k.served) && !t.ignored[r] && t.deps.Clock.Since(since) < discoveryPatience {
			groups[r.Group] = true
		}
	}
	for group := range t.latest.failing {
		if (!known[group] || watched[group]) && !unstored[group] {
			groups[group] = true
		}
	}
	return slices.Sorted(maps.Keys(groups))
}

// catalogue is what discovery showed last. It does not change any more.
func (t *knownTypes) catalogue() catalogue {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.latest
}

// state is that of a type; zero if there is none.
func (t *knownTypes) state(r schema.GroupResource) typeState {
	t.lock.Lock()
	defer t.lock.Unlock()
	if k := t.types[r]; k != nil {
		return k.state()
	}
	return typeState{}
}

// states are those of all types, sorted by name.
func (t *knownTypes) states() []typeState {
	t.lock.Lock()
	defer t.lock.Unlock()
	all := make([]typeState, 0, len(t.types))
	for _, k := range t.types {
		all = append(all, k.state())
	}
	slices.SortFunc(all, func(a, b typeState) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	return all
}

func (k *knownType) state() typeState {
	return typeState{apiType: k.apiType, standing: k.standing, err: k.err, lacking: k.lacking && !k.emptied, feed: k.feed}
}

// run asks for types and has their feeds run until ctx ends.
func (t *knownTypes) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { t.telling(ctx) })
	all.Go(func() { t.heeding(ctx) })
	t.giveWay(ctx)
	t.looking(ctx)
	all.Wait()
	t.stopAll()
}

// giveWay waits until the caches are filled, but not for long, and for the head start of those who work with them.
func (t *knownTypes) giveWay(ctx context.Context) {
	until := t.deps.Clock.Now().Add(firstPatience)
	for _, synced := range t.filling {
		if !t.await(ctx, synced, until.Sub(t.deps.Clock.Now())) {
			return
		}
	}
	timing.Sleep(ctx, t.deps.Clock, headStart)
}

// await waits for something to happen, at most so long, and reports whether it has.
func (t *knownTypes) await(ctx context.Context, what <-chan struct{}, most time.Duration) bool {
	timer := t.deps.Clock.NewTimer(most)
	defer timer.Stop()
	select {
	case <-what:
		return true
	case <-timer.C():
	case <-ctx.Done():
	}
	return false
}

// wanted selects the types whose objects can be asked for, which may be owners, and those that can be watched, which may be owned.
func wanted(api metav1.APIResource) bool {
	has := func(verb string) bool { return slices.Contains(api.Verbs, verb) }
	return has("get") || has("list") && has("watch") && has("delete")
}

// look asks discovery once and acts on the answer. It reports whether that was complete.
func (t *knownTypes) look(ctx context.Context) bool {
	answer := discovery.Ask(ctx, t.discovery, t.deps.Clock, wanted)
	if ctx.Err() != nil {
		return false
	}
	if answer.Err != nil {
		t.deps.SyncError()
		klog.FromContext(ctx).V(2).Info("Discovery is incomplete", "controller", Name, "reason", answer.Err)
		if len(answer.Failing) == 0 {
			return false // who knows what is missing
		}
	}
	t.take(ctx, answer)
	if answer.Complete() {
		t.tellIgnored(ctx, answer)
	}
	return answer.Complete()
}

// tellIgnored logs, once, which of the types that are to be ignored are not there: they may be misspelt.
func (t *knownTypes) tellIgnored(ctx context.Context, answer discovery.Answer) {
	if t.ignoredTold {
		return
	}
	t.ignoredTold = true
	for _, r := range t.deps.Ignored {
		if !answer.Has(r) && !slices.Contains(defaultIgnored, r) {
			klog.FromContext(ctx).Info("A type that is to be ignored is not served: it may be misspelt, or of another group", "controller", Name, "resource", r.String())
		}
	}
}

// take acts on what discovery showed: types come, change their version, and go.
func (t *knownTypes) take(ctx context.Context, answer discovery.Answer) {
	t.shifting.Lock()
	defer t.shifting.Unlock()
	now := t.deps.Clock.Now()
	failing := map[string]bool{}
	for _, f := range answer.Failing {
		failing[f.Group] = true
	}
	var stop []*caches.Feed
	var begin []schema.GroupResource
	var old []*feed
	t.lock.Lock()
	for _, a := range answer.Types {
		k := t.types[a.GroupResource()]
		if k == nil {
			k = &knownType{}
			t.types[a.GroupResource()] = k
		}
		moved := k.feed != nil && !k.cached && k.Version != a.Version
		if moved && failing[a.Group] && k.phase != away {
			continue // the version that is preferred may only not have answered
		}
		k.served = true
		k.kind, k.namespaced, k.versions = a.Kind, a.Namespaced, answer.Versions(a.GroupResource())
		if !k.cached {
			k.GroupVersionResource = a.GroupVersionResource
			k.watched = a.List && a.Watch && a.Delete && !t.ignored[a.GroupResource()]
		}
		switch {
		case k.cached:
			k.standing = k.after(shown, now)
		case !k.watched && k.feed != nil: // it was
			stop, old = append(stop, k.release()), append(old, k.feed)
			k.standing, k.feed, k.err = standing{}, nil, nil
		case k.watched && (k.source == nil || moved || k.phase == away):
			stop, begin = append(stop, k.release()), append(begin, a.GroupResource())
			if k.phase != listing {
				k.standing, k.whole, k.lacking = standing{listing, now}, false, false
			}
		}
	}
	fresh := false // something has gone of late
	for r, k := range t.types {
		if !failing[r.Group] && !answer.Has(r) {
			k.served = false
			if k.watched && !k.cached && k.phase != away {
				k.lacking = k.lacks(now)
				k.standing, k.err = k.after(notShown, now), nil
			}
			if !k.watched {
				delete(t.types, r)
			}
		}
		fresh = fresh || k.phase == away && now.Sub(k.since) < time.Minute
	}
	changed := t.compile(answer.Sent, failing)
	t.lock.Unlock()
	t.end(stop, old)
	t.begin(ctx, begin)
	if changed || fresh {
		t.changed()
	}
}

// lacks reports whether there may be objects of a type that goes away which its feed has not shown. That its watch has ended just before is of no account:
// it ends when the type goes.
func (k *knownType) lacks(now time.Time) bool {
	return k.phase != current && (k.phase != listing || !k.whole || k.listingFor(now) >= syncPatience)
}

// compile makes the catalogue of the types that are served, and tells the graph what they are. It reports whether it differs from the one
// before. The lock is held.
func (t *knownTypes) compile(sent time.Time, failing map[string]bool) bool {
	var all []apiType
	for _, k := range t.types {
		t.locate(k)
		if k.served {
			all = append(all, k.apiType)
		}
	}
	slices.SortFunc(all, func(a, b apiType) int { return strings.Compare(a.GroupResource().String(), b.GroupResource().String()) })
	next := newCatalogue(sent, slices.Sorted(maps.Keys(failing)), all...)
	same := reflect.DeepEqual(next.kinds, t.latest.kinds) && maps.Equal(next.failing, t.latest.failing) && !t.latest.sent.IsZero()
	t.latest = next
	return !same
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// changed has Changed called soon.
func (t *knownTypes) changed() { signal(t.tell) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// telling calls Changed, once for what comes together.
func (t *knownTypes) telling(ctx context.Context) {
	var told time.Time
	pause := minTold
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.tell:
		}
		if t.deps.Clock.Since(told) < pause {
			pause = min(2*pause, maxTold)
		} else {
			pause = minTold
		}
		if !timing.Sleep(ctx, t.deps.Clock, pause) {
			return
		}
		select { // those that came meanwhile
		case <-t.tell:
		default:
		}
		t.deps.Changed()
		told = t.deps.Clock.Now()
	}
}

// order puts first what says which types are local.
func order(a, b schema.GroupResource) int {
	rank := func(r schema.GroupResource) int {
		if r == apiServices || r == crds {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.String(), b.String()))
}
