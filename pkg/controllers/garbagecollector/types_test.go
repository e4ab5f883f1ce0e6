package garbagecollector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/freshness"
)

// apiWorld is a graph with the types of a server.
type apiWorld struct {
	*knownTypes
	api     *fakeapi.Types
	caches  *caches.Caches
	graph   *graph
	changes atomic.Int32
	errors  atomic.Int32
	noWay   atomic.Bool // to the API server
	stop    func()
}

const (
	widgetsV1 = "example.com/v1"
)

var (
	widgetType  = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	secretsType = schema.GroupResource{Resource: "secrets"}
	nodes       = schema.GroupResource{Resource: "nodes"}
)

// newAPIWorld has an API server with secrets, nodes, APIServices and CustomResourceDefinitions; nodes have a cache.
func newAPIWorld(t *testing.T) *apiWorld {
	t.Helper()
	w := &apiWorld{api: fakeapi.NewTypes(t)}
	w.api.Serve("v1", metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true})
	w.api.Serve("v1", metav1.APIResource{Name: "events", Kind: "Event", Namespaced: true})
	w.api.Serve("v1", metav1.APIResource{Name: "componentstatuses", Kind: "ComponentStatus", Verbs: metav1.Verbs{"get", "list"}})
	w.api.Serve("v1", metav1.APIResource{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}})
	w.api.Serve("v1", metav1.APIResource{Name: "nodes", Kind: "Node"})
	w.api.Serve("apiregistration.k8s.io/v1", metav1.APIResource{Name: "apiservices", Kind: "APIService"})
	w.api.Serve("apiextensions.k8s.io/v1", metav1.APIResource{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"})
	for _, local := range []string{"v1.", "v1.apiregistration.k8s.io", "v1.apiextensions.k8s.io"} {
		w.service(local, true)
	}
	return w
}

// service registers an APIService.
func (w *apiWorld) service(name string, local bool) {
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"other": "label"}}
	if local {
		meta.Labels[automanaged] = "onstart"
	}
	w.api.Put("apiregistration.k8s.io/v1", "apiservices", meta)
}

// define serves widgets, as a CustomResourceDefinition does.
func (w *apiWorld) define() {
	w.api.Serve(widgetsV1, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	w.api.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: "widgets.example.com"})
	w.service("v1.example.com", true)
}

// undefine deletes widgets, their definition and their APIService, as an API server does.
func (w *apiWorld) undefine(names ...string) {
	for _, name := range names {
		w.api.Remove(widgetsV1, "widgets", "ns", name)
	}
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	w.api.Withdraw(widgetsV1, "widgets")
	w.api.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
}

// aggregate serves widgets, as a server behind the aggregator does.
func (w *apiWorld) aggregate() {
	w.api.Serve(widgetsV1, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	w.service("v1.example.com", false)
}

// separate deletes the APIService of widgets. That says nothing of their objects.
func (w *apiWorld) separate() {
	w.api.Withdraw(widgetsV1, "widgets")
	w.api.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
}

func (w *apiWorld) start(t *testing.T) {
	t.Helper()
	transport := freshness.NewTransport(clock.RealClock{}, freshness.NewMetrics(prometheus.NewRegistry()))
	made := false
	direct := func() (*rest.Config, *http.Client, error) {
		if made && w.noWay.Load() { // but discovery has one
			return nil, nil, errors.New("no way")
		}
		made = true
		return transport.FeedClient(w.api.Config())
	}
	w.caches = caches.New(fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}), caches.Config{Name: t.Name(), Direct: direct, Transport: transport})
	if _, err := w.caches.Nodes(); err != nil {
		t.Fatal(err)
	}
	w.graph = newGraph(clock.RealClock{}, func(wakes) {})
	var err error
	w.knownTypes, err = newTypes(typesDeps{
		Graph: w.graph, Caches: w.caches, Clock: clock.RealClock{}, Ignored: defaultIgnored,
		Changed: func() { w.changes.Add(1) }, SyncError: func() { w.errors.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.caches.Start(ctx)
	w.stop = func() {
		cancel()
		w.caches.Shutdown()
	}
	t.Cleanup(w.stop)
}

// is waits until a type is in a phase.
func (w *apiWorld) is(t *testing.T, r schema.GroupResource, want phase) {
	t.Helper()
	fakeapi.Eventually(t, func() error {
		if got := w.state(r); got.phase != want {
			return fmt.Errorf("%v is %q (%v), want %q", r, got.phase, got.err, want)
		}
		return nil
	})
}

func (w *apiWorld) has(t *testing.T, u types.UID, want bool) {
	t.Helper()
	fakeapi.Eventually(t, func() error {
		key, _ := idOf(u)
		if _, _, _, ok := w.graph.look(key); ok != want {
			return fmt.Errorf("object %s is in the graph: %v, want %v", u, ok, want)
		}
		return nil
	})
}

func widget(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "ns"} }

func TestTypesAreThoseOfDiscovery(t *testing.T) {
	w := newAPIWorld(t)
	secret := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "s", Namespace: "ns"})
	w.define()
	w.start(t)
	for _, r := range []schema.GroupResource{secretsType, widgetType, crds, apiServices, nodes, {Resource: "namespaces"}} {
		w.is(t, r, current)
	}
	w.has(t, secret, true)
	w.has(t, "node-uid", true)
	if n := w.api.Asked("watch /api/v1/nodes") + w.api.Asked("list /api/v1/nodes"); n > 0 {
		t.Errorf("nodes, which have a cache, were asked for %d times", n)
	}
	for _, r := range []string{"events", "componentstatuses"} {
		if s := w.state(schema.GroupResource{Resource: r}); s.watched || s.phase != "" || w.api.Asked("watch /api/v1/"+r) > 0 {
			t.Errorf("%s are watched: %+v", r, s)
		}
	}
	c := w.catalogue()
	for _, tt := range []struct {
		ref  reference
		want problem
	}{
		{reference{apiVersion: "v1", kind: "Secret"}, fine},
		{reference{apiVersion: "v1", kind: "ComponentStatus"}, fine},
		{reference{apiVersion: widgetsV1, kind: "Widget"}, fine},
		{reference{apiVersion: "v1", kind: "Binding"}, unserved},
		{reference{apiVersion: widgetsV1, kind: "Gadget"}, unserved},
	} {
		if at, got := c.resolve(tt.ref, "ns"); got != tt.want {
			t.Errorf("%s resolves to %v with problem %q, want %q", tt.ref.kind, at, got, tt.want)
		}
	}
	fakeapi.Eventually(t, func() error {
		for _, s := range w.states() {
			if s.watched && !s.local {
				return fmt.Errorf("%v is taken for another API server's", s.GroupVersionResource)
			}
		}
		return nil
	})
}

// A type is the API server's own if it keeps the APIServices of all its versions by itself.
func TestWhoServesAType(t *testing.T) {
	for _, tt := range []struct {
		name     string
		services map[string]bool
		defined  bool
		want     bool
		told     bool
	}{
		{"APIServices that the API server keeps", map[string]bool{"v1.example.com": true, "v2.example.com": true}, false, true, true},
		{"an APIService of another server", map[string]bool{"v1.example.com": false, "v2.example.com": true}, true, false, true},
		{"a definition, and no APIServices at all", nil, true, true, true},
		{"of one version nothing says so", map[string]bool{"v1.example.com": true}, false, false, false},
		{"of one version nothing says so, and the other is another server's", map[string]bool{"v2.example.com": false}, false, false, true},
		{"nothing says so", nil, false, false, false},
	} {
		k := &knownTypes{services: map[string]bool{}, defined: map[string]time.Time{}, known: make(chan struct{})}
		maps.Copy(k.services, tt.services)
		if tt.defined {
			k.defined["widgets.example.com"] = began
		}
		typ := &knownType{apiType: apiType{GroupVersionResource: widgetType.WithVersion("v1"), versions: []string{"v1", "v2"}}}
		if local, told := k.isLocal(typ); local != tt.want || told != tt.told {
			t.Errorf("%s: local %v, told %v, want %v, %v", tt.name, local, told, tt.want, tt.told)
		}
	}
}

func TestATypeThatIsDefinedIsSeenAtOnceAndOneThatIsNotAnyMoreGoes(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, crds, current)
	w.is(t, apiServices, current)
	w.define()
	w.is(t, widgetType, current) // the next look without an event is minutes away
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	owned := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "s", Namespace: "ns",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: widgetsV1, Kind: "Widget", Name: "a", UID: a}}})
	w.has(t, a, true)
	w.has(t, owned, true)

	before := w.changes.Load()
	w.undefine("a")
	w.is(t, widgetType, away)
	w.has(t, a, false)
	key, _ := idOf(owned)
	ref := reference{apiVersion: widgetsV1, kind: "Widget", name: "a", uid: a}
	fakeapi.Eventually(t, func() error {
		_, against, _, _ := w.graph.look(key)
		switch {
		case len(against) != 1 || against[0].gone.IsZero():
			return fmt.Errorf("the graph was not told that the owner was deleted: %+v", against)
		case !w.catalogue().lacks(ref, against[0].gone):
			return errors.New("no discovery has shown since that the kind is gone")
		case w.changes.Load() == before:
			return errors.New("nobody was told")
		}
		return nil
	})

	w.define() // as another
	w.is(t, widgetType, current)
	b := w.api.Put(widgetsV1, "widgets", widget("b"))
	w.has(t, b, true)
}

// Three streams tell of a type that goes: of its definition, its APIService and its objects, in any order.
func TestTheLastObjectsOfATypeAreHeardOfAfterItsDefinition(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	owned := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "s", Namespace: "ns",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: widgetsV1, Kind: "Widget", Name: "a", UID: a}}})
	w.start(t)
	w.has(t, a, true)
	w.has(t, owned, true)
	isLocal := func(want bool) {
		t.Helper()
		fakeapi.Eventually(t, func() error {
			if s := w.state(widgetType); s.local != want {
				return fmt.Errorf("widgets are %+v, want local %v", s, want)
			}
			return nil
		})
	}
	isLocal(true)
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	w.api.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
	isLocal(false)
	w.api.Remove(widgetsV1, "widgets", "ns", "a")
	w.has(t, a, false)
	w.api.Withdraw(widgetsV1, "widgets")
	w.is(t, widgetType, away)
	key, _ := idOf(owned)
	fakeapi.Eventually(t, func() error {
		if _, against, _, _ := w.graph.look(key); len(against) != 1 || against[0].gone.IsZero() {
			return fmt.Errorf("the graph was not told that the owner was deleted: %+v", against)
		}
		return nil
	})
}

// What is told by a feed that another server has taken over proves nothing.
func TestAFeedIsAnothersAsSoonAsSomethingSaysSo(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	owned := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "s", Namespace: "ns",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: widgetsV1, Kind: "Widget", Name: "a", UID: a}}})
	w.start(t)
	w.has(t, a, true)
	w.has(t, owned, true)
	feedIsLocal := func(want bool) {
		t.Helper()
		fakeapi.Eventually(t, func() error {
			w.graph.lock.Lock()
			defer w.graph.lock.Unlock()
			if f := w.graph.feeds[w.graph.nodes[keyOf(a)].feed]; f.typ.local != want {
				return fmt.Errorf("the feed is of %+v, want local %v", f.typ, want)
			}
			return nil
		})
	}
	feedIsLocal(true)
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	w.api.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); s.local {
			return fmt.Errorf("widgets are %+v", s)
		}
		return nil
	})
	feedIsLocal(true)
	w.service("v1.example.com", false)
	feedIsLocal(false)
	w.api.Remove(widgetsV1, "widgets", "ns", "a")
	w.has(t, a, false)
	if _, against, _, _ := w.graph.look(keyOf(owned)); len(against) != 1 || !against[0].gone.IsZero() {
		t.Errorf("what the graph holds against the owner is %+v", against)
	}
}

// What cannot be discovered for a moment goes on being watched, and what is in its group is not taken to be gone.
func TestPartialDiscoveryTakesNothingAway(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	w.start(t)
	w.has(t, a, true)
	w.api.BreakDiscovery(widgetsV1, http.StatusServiceUnavailable)
	asked := w.api.Asked("discovery")
	w.service("v1.another.example.com", true) // whatever happens
	w.api.Serve("another.example.com/v1", metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	w.is(t, schema.GroupResource{Group: "another.example.com", Resource: "gadgets"}, current)
	if w.api.Asked("discovery") == asked || w.errors.Load() == 0 {
		t.Errorf("discovery was asked %d times, %d errors", w.api.Asked("discovery")-asked, w.errors.Load())
	}
	if s := w.state(widgetType); s.phase != current {
		t.Errorf("widgets are %+v", s)
	}
	gadget := reference{apiVersion: widgetsV1, kind: "Unheard", name: "x"}
	if _, p := w.catalogue().resolve(gadget, "ns"); p != undiscovered {
		t.Errorf("of a kind in the group it is said %q, want %q", p, undiscovered)
	}
	if _, p := w.catalogue().resolve(reference{apiVersion: widgetsV1, kind: "Widget", name: "a"}, "ns"); p != fine {
		t.Errorf("of a kind that was known it is said %q", p)
	}
	b := w.api.Put(widgetsV1, "widgets", widget("b"))
	w.has(t, b, true)
}

// An answer without the core API says nothing about anything.
func TestADiscoveryThatFailsIsNoAnswer(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.start(t)
	w.is(t, widgetType, current)
	sent := w.catalogue().sent
	w.api.BreakDiscovery("v1", http.StatusInternalServerError)
	w.api.Withdraw("v1", "namespaces")
	failed := w.errors.Load()
	w.service("v1.another.example.com", true)
	fakeapi.Eventually(t, func() error {
		if w.errors.Load() == failed {
			return errors.New("discovery has not failed yet")
		}
		return nil
	})
	if s := w.state(secretsType); s.phase != current {
		t.Errorf("secrets are %+v", s)
	}
	if c := w.catalogue(); c.sent.Before(sent) || len(c.kinds) < 5 {
		t.Errorf("the catalogue has %d kinds", len(c.kinds))
	}
}

// As behind a conversion webhook that does not answer, or one that answers nonsense.
func TestATypeThatCannotBeListedIsInNobodysWay(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.api.Serve(widgetsV1, metav1.APIResource{Name: "broken", Kind: "Broken", Namespaced: true})
	w.api.Serve(widgetsV1, metav1.APIResource{Name: "hanging", Kind: "Hanging", Namespaced: true})
	w.api.Break(widgetsV1, "broken", http.StatusForbidden)
	heal := w.api.Hang(t, widgetsV1, "hanging")
	w.start(t)
	w.is(t, widgetType, current)
	w.is(t, secretsType, current)
	broken, hanging := schema.GroupResource{Group: "example.com", Resource: "broken"}, schema.GroupResource{Group: "example.com", Resource: "hanging"}
	fakeapi.Eventually(t, func() error {
		if s := w.state(broken); s.err == nil || !s.blind() || s.listingFor(time.Now()) == 0 {
			return fmt.Errorf("the broken type is %+v", s)
		}
		return nil
	})
	if s := w.state(hanging); !s.blind() {
		t.Errorf("the type that does not answer is %+v", s)
	}
	w.api.Break(widgetsV1, "broken", 0)
	heal()
	w.api.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: "broken.example.com"}) // whoever repairs it, tells
	w.is(t, broken, current)
	w.is(t, hanging, current)
	if s := w.state(broken); s.err != nil {
		t.Errorf("it works, and still has the error %v", s.err)
	}
}

// A hundred thousand objects whose owners are still to come are not looked at one by one; but nobody waits for ever.
func TestOwnersAreToComeWhileTheirTypeIsListed(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.api.Serve(widgetsV1, metav1.APIResource{Name: "hanging", Kind: "Hanging", Namespaced: true})
	heal := w.api.Hang(t, widgetsV1, "hanging")
	owned := func(name, kind string) types.UID {
		owner := metav1.OwnerReference{APIVersion: widgetsV1, Kind: kind, Name: "o", UID: types.UID("no-such-" + kind)}
		return w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: name, Namespace: "ns", OwnerReferences: []metav1.OwnerReference{owner}})
	}
	ofWidget, ofHanging := owned("a", "Widget"), owned("b", "Hanging")
	w.start(t)
	suspects := func(want ...types.UID) {
		t.Helper()
		fakeapi.Eventually(t, func() error {
			var got []types.UID
			for _, s := range w.graph.all().objects {
				for _, u := range []types.UID{ofWidget, ofHanging} {
					if s == keyOf(u) {
						got = append(got, u)
					}
				}
			}
			slow := w.state(schema.GroupResource{Group: "example.com", Resource: "hanging"}).listingFor(time.Now()) >= syncPatience
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) && !slow {
				return fmt.Errorf("looked at are %v, want %v", got, want)
			}
			return nil
		})
	}
	w.is(t, secretsType, current)
	w.is(t, widgetType, current)
	w.has(t, ofHanging, true)
	suspects(ofWidget)
	w.heed(t.Context(), time.Now().Add(syncPatience))
	suspects(ofWidget, ofHanging)
	heal()
	w.is(t, schema.GroupResource{Group: "example.com", Resource: "hanging"}, current)
	suspects(ofWidget, ofHanging)
}

func TestTypesThatWaitForAPlaceAreNotSlow(t *testing.T) {
	const n = 9 // one more than there are places
	w := newAPIWorld(t)
	w.define()
	for i := range n {
		resource := fmt.Sprint("hanging", i)
		w.api.Serve(widgetsV1, metav1.APIResource{Name: resource, Kind: resource, Namespaced: true})
		t.Cleanup(w.api.Hang(t, widgetsV1, resource))
	}
	w.start(t)
	fakeapi.Eventually(t, func() error {
		now := time.Now()
		w.heed(t.Context(), now)
		var since []time.Duration
		for i := range n {
			since = append(since, w.state(schema.GroupResource{Group: "example.com", Resource: fmt.Sprint("hanging", i)}).listingFor(now))
		}
		slices.Sort(since)
		if since[0] != 1 || since[1] == 1 {
			return fmt.Errorf("types are listed for %v, want one that waits for a place and is not", since)
		}
		return nil
	})
}

func TestAnotherVersionKeepsTheObjects(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	w.start(t)
	w.has(t, a, true)
	w.api.Withdraw(widgetsV1, "widgets")
	w.api.Serve("example.com/v2", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	heal := w.api.Hang(t, "example.com/v2", "widgets")
	w.service("v2.example.com", true)
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); s.Version != "v2" || s.phase != listing {
			return fmt.Errorf("widgets are %+v", s)
		}
		return nil
	})
	w.has(t, a, true)
	heal()
	w.is(t, widgetType, current)
	w.has(t, a, false) // it is not in the new list
}

// goroutinesOfOurs counts those that run code of this module. How many connections HTTP keeps says nothing.
func goroutinesOfOurs() int {
	all := make([]byte, 1<<22)
	all = all[:runtime.Stack(all, true)]
	n := 0
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("minikcm/pkg/")) {
			n++
		}
	}
	return n
}

func TestNothingIsLeftOfTypesThatCameAndWent(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, crds, current)
	w.is(t, apiServices, current)
	round := func() {
		w.define()
		w.is(t, widgetType, current)
		w.undefine()
		w.is(t, widgetType, away)
		w.heed(t.Context(), time.Now().Add(lingering))
		w.lock.Lock()
		defer w.lock.Unlock()
		if w.types[widgetType].source != nil {
			t.Error("its feed is still there")
		}
	}
	round()
	before := goroutinesOfOurs()
	for range 2 {
		round()
	}
	fakeapi.Eventually(t, func() error {
		if now := goroutinesOfOurs(); now > before {
			return fmt.Errorf("%d goroutines before and %d after", before, now)
		}
		return nil
	})
	w.heed(t.Context(), time.Now().Add(2*keptFor))
	if s := w.state(widgetType); s.phase != "" {
		t.Errorf("after a long time the type is %+v", s)
	}
	w.stop()
	fakeapi.Eventually(t, func() error {
		if n := w.api.Watches(); n > 0 {
			return fmt.Errorf("%d watches are open after the end", n)
		}
		return nil
	})
}

// Feeds of which nothing is heard are doubted, and their watches opened anew.
func TestSilenceIsDoubted(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.start(t)
	w.is(t, widgetType, current)
	opened := func() int { return w.api.Asked("watch /apis/example.com/v1/widgets") }
	before := opened()
	w.heed(t.Context(), time.Now().Add(quietFor+time.Minute))
	if s := w.state(widgetType); s.phase != silent || !s.blind() {
		t.Errorf("widgets are %+v", s)
	}
	fakeapi.Eventually(t, func() error {
		if opened() == before {
			return errors.New("its watch was not opened anew")
		}
		return nil
	})
}

// What is known of the objects of a type that has gone is kept for as long as an owner waits for them.
func TestATypeThatHoldsOrphansIsNotForgotten(t *testing.T) {
	w := newAPIWorld(t)
	w.aggregate()
	deleted := metav1.NewTime(began)
	owner := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "o", Namespace: "ns", DeletionTimestamp: &deleted, Finalizers: []string{"orphan"}})
	orphan := widget("d")
	orphan.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "o", UID: owner}}
	d := w.api.Put(widgetsV1, "widgets", orphan)
	w.start(t)
	w.has(t, owner, true)
	w.has(t, d, true)
	w.separate() // but the object is still there
	w.is(t, widgetType, away)
	if s := w.state(widgetType); s.blind() {
		t.Errorf("all objects of the type were seen, and it is %+v", s)
	}
	w.awayForLong(widgetType)
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); time.Since(s.since) > keptFor {
			return fmt.Errorf("the type is %+v", s)
		}
		return nil
	})
	w.has(t, d, true)
	w.api.Remove("v1", "secrets", "ns", "o")
	w.has(t, owner, false)
	w.awayForLong(widgetType)
	w.has(t, d, false)
}

func TestATypeThatGoesUnseenIsMissed(t *testing.T) {
	now := began.Add(time.Hour)
	for _, tt := range []struct {
		name string
		typ  knownType
		want bool
	}{
		{"it was up to date", knownType{standing: standing{current, began}, whole: true}, false},
		{"its watch has ended just now", knownType{standing: standing{listing, now.Add(-time.Second)}, whole: true}, false},
		{"its watch had ended before", knownType{standing: standing{listing, now.Add(-time.Minute)}, whole: true}, true},
		{"it was never listed", knownType{standing: standing{listing, now.Add(-time.Second)}}, true},
		{"it was silent", knownType{standing: standing{silent, now.Add(-time.Second)}, whole: true}, true},
	} {
		if got := tt.typ.lacks(now); got != tt.want {
			t.Errorf("%s: objects may be missing: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWhichTypesShouldHaveAFeedAndHaveNone(t *testing.T) {
	for _, tt := range []struct {
		name string
		typ  knownType
		want bool
	}{
		{"one that has none yet", knownType{apiType: apiType{watched: true}, standing: standing{phase: listing}}, true},
		{"one that has one", knownType{apiType: apiType{watched: true}, standing: standing{phase: listing}, source: &caches.Feed{}}, false},
		{"one that is no longer watched", knownType{standing: standing{phase: listing}}, false},
		{"one that is away", knownType{apiType: apiType{watched: true}, standing: standing{phase: away}}, false},
		{"one with a cache", knownType{apiType: apiType{watched: true}, standing: standing{phase: listing}, cached: true}, false},
	} {
		if got := tt.typ.lacksFeed(); got != tt.want {
			t.Errorf("%s: it should have one: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAFeedThatCouldNotBeStartedIsStartedAgain(t *testing.T) {
	w := newAPIWorld(t)
	w.noWay.Store(true)
	w.start(t)
	fakeapi.Eventually(t, func() error {
		if s := w.state(secretsType); s.err == nil {
			return fmt.Errorf("secrets are %+v", s)
		}
		return nil
	})
	w.noWay.Store(false)
	w.is(t, secretsType, current)
	if s := w.state(secretsType); s.err != nil {
		t.Errorf("it works, and still has the error %v", s.err)
	}
}

// A list that is being stored while its source is replaced is not one of the source that follows.
func TestWhatAFormerSourceTellsIsNotHeard(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.start(t)
	w.is(t, widgetType, current)
	asked := func() int { return w.api.Asked("watch /apis/example.com/v1/widgets") }
	before := asked()
	w.shifting.Lock()
	w.lock.Lock()
	k := w.types[widgetType]
	former := k.turn
	stop := k.release()
	k.standing = standing{listing, time.Now()} // as with another version
	w.lock.Unlock()
	stop.Stop()
	w.happened(t.Context(), widgetType, former, listed, nil)
	if s := w.state(widgetType); s.phase != listing {
		t.Errorf("nothing brings in the type, and it is %+v", s)
	}
	w.shifting.Unlock()
	w.is(t, widgetType, current)
	if asked() == before {
		t.Error("it has no source")
	}
}

// A type that comes back in another version is begun, although a third version of its group does not answer.
func TestATypeComesBackWhileAnotherVersionOfItsGroupFails(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.start(t)
	w.is(t, widgetType, current)
	w.undefine()
	w.is(t, widgetType, away)
	w.api.Serve("example.com/v3", metav1.APIResource{Name: "gadgets", Kind: "Gadget", Namespaced: true})
	w.api.BreakDiscovery("example.com/v3", http.StatusServiceUnavailable)
	w.api.Serve("example.com/v2", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	w.service("v2.example.com", true)
	w.is(t, widgetType, current)
	if s := w.state(widgetType); s.Version != "v2" {
		t.Errorf("widgets are %+v", s)
	}
}

// awayForLong has a type been away for longer than it is kept.
func (w *apiWorld) awayForLong(r schema.GroupResource) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.types[r].since = time.Now().Add(-2 * keptFor)
}

// What was never seen of a type holds owners that leave orphans, those as well that are deleted later, but not for ever: they would hold each other.
func TestATypeThatGoesUnseenHoldsOwnersForAWhile(t *testing.T) {
	w := newAPIWorld(t)
	w.aggregate()
	deleted := metav1.NewTime(began)
	w.api.Break(widgetsV1, "widgets", http.StatusInternalServerError)
	w.start(t)
	w.is(t, widgetType, listing)
	w.unseen(t, widgetType)
	w.separate()
	w.is(t, widgetType, away)
	if s := w.state(widgetType); !s.blind() || s.err != nil {
		t.Errorf("nothing was seen of the type, and it is %+v", s)
	}
	owner := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "o", Namespace: "ns", DeletionTimestamp: &deleted, Finalizers: []string{"orphan"}})
	w.has(t, owner, true)
	w.awayForLong(widgetType)
	w.heed(t.Context(), time.Now())
	if s := w.state(widgetType); s.phase != "" {
		t.Errorf("the owner waits for the type and the type for the owner: it is %+v", s)
	}
}

// A definition goes after the last of its objects has gone, so that nothing is missed of what was never seen.
func TestATypeWhoseDefinitionHasGoneHoldsNobody(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.api.Break(widgetsV1, "widgets", http.StatusInternalServerError)
	w.start(t)
	w.is(t, crds, current)
	w.unseen(t, widgetType)
	w.undefine()
	w.is(t, widgetType, away)
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); s.blind() || s.err != nil {
			return fmt.Errorf("widgets are %+v", s)
		}
		return nil
	})
	w.api.Break(widgetsV1, "widgets", 0)
	w.define()
	w.is(t, widgetType, current)
}

// unseen waits until a type is known to fail.
func (w *apiWorld) unseen(t *testing.T, r schema.GroupResource) {
	t.Helper()
	w.is(t, r, listing)
	w.happened(t.Context(), r, w.turnOf(r), lost, errors.New("broken"))
}

func (w *apiWorld) turnOf(r schema.GroupResource) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.types[r].turn
}

// Why a feed does not work is said until it does: that somebody has ended an attempt to hurry it changes nothing.
func TestWhatIsWrongWithATypeIsSaidUntilItIsListed(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, secretsType, current)
	for _, step := range []struct {
		what occurrence
		err  error
		want bool
	}{{lost, errors.New("broken"), true}, {lost, nil, true}, {listed, nil, false}, {lost, nil, false}} {
		w.happened(t.Context(), secretsType, w.turnOf(secretsType), step.what, step.err)
		if s := w.state(secretsType); (s.err != nil) != step.want {
			t.Errorf("%s with error %v: the type has the error %v", step.what, step.err, s.err)
		}
	}
}

// An API server that has just started shows less than there is.
func TestAnAPIServerThatIsNotReadyTakesNothingAway(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	w.start(t)
	w.is(t, crds, current)
	w.is(t, apiServices, current)
	w.is(t, widgetType, current)
	w.has(t, a, true)
	w.api.SetReadyz(http.StatusInternalServerError)
	w.look(t.Context()) // one that was under way has ended by then
	sent := w.catalogue().sent
	w.api.Withdraw(widgetsV1, "widgets")
	w.api.Serve("other.example.com/v1", metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	w.api.BreakDiscovery("other.example.com/v1", http.StatusServiceUnavailable)
	if w.look(t.Context()) {
		t.Error("discovery counts as complete")
	}
	if s := w.state(widgetType); s.phase == away {
		t.Errorf("widgets are %+v", s)
	}
	if w.catalogue().sent.After(sent) {
		t.Error("owners that leave orphans may go by what the API server shows")
	}
	w.api.SetReadyz(0)
	w.look(t.Context())
	w.is(t, widgetType, away)
}

// While types come in one after the other, whoever is told is told less and less often.
func TestThatThingsHaveChangedIsToldLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var told []time.Duration
		k := &knownTypes{tell: make(chan struct{}, 1), deps: typesDeps{Clock: clock.RealClock{}, Changed: func() { told = append(told, time.Since(began)) }}}
		ctx, cancel := context.WithCancel(t.Context())
		go k.telling(ctx)
		for range 200 {
			k.changed()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(told); n < 5 || n > 13 {
			t.Errorf("told %d times in twenty seconds: %v", n, told)
		}
		before := time.Since(began)
		k.changed()
		time.Sleep(time.Second)
		synctest.Wait()
		if last := told[len(told)-1] - before; last != minTold {
			t.Errorf("after a quiet time it is told after %v", last)
		}
		cancel()
		synctest.Wait()
	})
}

// Twenty definitions that are there at the start make no type begin twice.
func TestWhatIsThereAtTheStartIsAskedForOnce(t *testing.T) {
	w := newAPIWorld(t)
	for n := range 20 {
		name := fmt.Sprint("t", n)
		w.api.Serve(widgetsV1, metav1.APIResource{Name: name, Kind: "T", Namespaced: true})
		w.api.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: name + ".example.com"})
	}
	w.service("v1.example.com", true)
	w.start(t)
	paths := []string{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices", "/api/v1/secrets"}
	for n := range 20 {
		w.is(t, schema.GroupResource{Group: "example.com", Resource: fmt.Sprint("t", n)}, current)
		paths = append(paths, fmt.Sprint("/apis/example.com/v1/t", n))
	}
	total := 0
	for _, path := range paths {
		n := w.api.Asked("watch " + path)
		if total += n; n == 0 || n > 2 {
			t.Errorf("%s was watched %d times", path, n)
		}
	}
	if total > len(paths)+2 { // one that is answered nothing for a second begins anew
		t.Errorf("%d types were watched %d times", len(paths), total)
	}
}

// What the graph knows of a type may change while a list of it comes: both feeds that say what is local do that to each other.
func TestATypeMayBeRelocatedWhileItIsListed(t *testing.T) {
	w := &knownTypes{
		deps:  typesDeps{Graph: newGraph(clock.RealClock{}, func(wakes) {}), Clock: clock.RealClock{}},
		types: map[schema.GroupResource]*knownType{}, services: map[string]bool{}, defined: map[string]time.Time{}, known: make(chan struct{}), woken: make(chan struct{}, 1),
	}
	f, err := w.deps.Graph.feed(objectType{GroupResource: crds})
	check(t, err)
	store := w.storeOf(crds, f)
	var both sync.WaitGroup
	both.Go(func() {
		for n := range 3000 {
			_, _ = w.deps.Graph.feed(objectType{GroupResource: crds, local: n%2 == 0})
		}
	})
	both.Go(func() {
		for n := range 3000 {
			if err := store.Replace([]any{newThing("", "widgets.example.com", uid(n))}, "1"); err != nil {
				t.Error(err)
			}
		}
	})
	both.Wait()
}
