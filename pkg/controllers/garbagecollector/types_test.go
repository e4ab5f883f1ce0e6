package garbagecollector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/caches"
	"minikcm/pkg/controllers/internal/discovery"
	"minikcm/pkg/freshness"
)

// apiWorld is a table of types with an API server.
type apiWorld struct {
	*knownTypes
	api     *fakeapi.Types
	caches  *caches.Caches
	graph   *graph
	changes atomic.Int32
	errors  atomic.Int32
	noWay   atomic.Bool // Direct fails
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

// newAPIWorld returns a world whose API server has secrets, nodes, APIServices and CustomResourceDefinitions; nodes
// have a cache.
func newAPIWorld(t *testing.T) *apiWorld {
	t.Helper()
	w := &apiWorld{api: fakeapi.NewTypes(t)}
	w.api.AddType("v1", metav1.APIResource{Name: "secrets", Kind: "Secret", Namespaced: true})
	w.api.AddType("v1", metav1.APIResource{Name: "events", Kind: "Event", Namespaced: true})
	w.api.AddType("v1", metav1.APIResource{Name: "componentstatuses", Kind: "ComponentStatus", Verbs: metav1.Verbs{"get", "list"}})
	w.api.AddType("v1", metav1.APIResource{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}})
	w.api.AddType("v1", metav1.APIResource{Name: "nodes", Kind: "Node"})
	w.api.AddType("apiregistration.k8s.io/v1", metav1.APIResource{Name: "apiservices", Kind: "APIService"})
	w.api.AddType("apiextensions.k8s.io/v1", metav1.APIResource{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"})
	return w
}

// service registers an APIService.
func (w *apiWorld) service(name string) {
	w.api.Put("apiregistration.k8s.io/v1", "apiservices", metav1.ObjectMeta{Name: name})
}

// define serves widgets, as a CustomResourceDefinition does.
func (w *apiWorld) define() {
	w.api.AddType(widgetsV1, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	w.api.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: "widgets.example.com"})
	w.service("v1.example.com")
}

// undefine deletes widgets, then the definition and the APIService, as an API server does.
func (w *apiWorld) undefine(names ...string) {
	for _, name := range names {
		w.api.Remove(widgetsV1, "widgets", "ns", name)
	}
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	w.api.RemoveType(widgetsV1, "widgets")
	w.api.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
}

// build makes a table without running discovery.
func (w *apiWorld) build(t *testing.T, clk clock.WithTicker) {
	t.Helper()
	transport := freshness.NewTransport(clock.RealClock{})
	made := false
	direct := func() (*rest.Config, *http.Client, error) {
		if made && w.noWay.Load() { // not for the discovery client
			return nil, nil, errors.New("no way")
		}
		made = true
		return transport.Client(w.api.Config(), false)
	}
	w.caches = caches.New(fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}}), caches.Config{Name: t.Name(), Direct: direct})
	if _, err := w.caches.Nodes(); err != nil {
		t.Fatal(err)
	}
	w.graph = newGraph(clk, func(queueKeys) {})
	var err error
	w.knownTypes, err = newTypes(typesDeps{
		Graph: w.graph, Caches: w.caches, Clock: clk, Ignored: DefaultConfig().ignored(),
		Changed: func() { w.changes.Add(1) }, SyncError: func() { w.errors.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *apiWorld) start(t *testing.T) {
	t.Helper()
	w.build(t, clock.RealClock{})
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
		if _, ok := w.graph.observe(keyOf(u)); ok != want {
			return fmt.Errorf("object %s is in the graph: %v, want %v", u, ok, want)
		}
		return nil
	})
}

// areLocal waits until widgets are a local type.
func (w *apiWorld) areLocal(t *testing.T) {
	t.Helper()
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); !s.local {
			return fmt.Errorf("widgets are not local: %+v", s)
		}
		return nil
	})
}

// putOwned creates a secret with a widget as its owner.
func (w *apiWorld) putOwned(owner string, u types.UID) types.UID {
	refs := []metav1.OwnerReference{ref(widgetsV1, "Widget", owner, u)}
	return w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "of-" + owner, Namespace: "ns", OwnerReferences: refs})
}

func widget(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "ns"} }

func TestTypesFollowDiscovery(t *testing.T) {
	w := newAPIWorld(t)
	secret := w.api.Put("v1", "secrets", metav1.ObjectMeta{Name: "s", Namespace: "ns"})
	w.define()
	w.start(t)
	for _, r := range []schema.GroupResource{secretsType, widgetType, crds, apiServices, nodes, {Resource: "namespaces"}} {
		w.is(t, r, current)
	}
	w.has(t, secret, true)
	w.has(t, "node-uid", true)
	if n := w.api.RequestCount("watch /api/v1/nodes") + w.api.RequestCount("list /api/v1/nodes"); n > 0 {
		t.Errorf("nodes, which have a cache, were requested %d times", n)
	}
	for _, r := range []string{"events", "componentstatuses"} {
		if s := w.state(schema.GroupResource{Resource: r}); s.watched || s.phase != "" || w.api.RequestCount("watch /api/v1/"+r) > 0 {
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
		for _, s := range w.allStates() {
			if s.watched && !s.local {
				return fmt.Errorf("%v is taken for another API server's", s.GroupVersionResource)
			}
		}
		return nil
	})
}

// Every version of a local type has the same storage.
func TestLocalTypes(t *testing.T) {
	k := &knownTypes{defined: map[string]time.Time{"widgets.example.com": began}}
	for r, want := range map[schema.GroupResource]bool{
		secretsType: true, crds: true, apiServices: true, {Group: "apps", Resource: "deployments"}: true, widgetType: true,
		{Group: "example.com", Resource: "gadgets"}: false, {Group: "metrics.k8s.io", Resource: "pods"}: false,
	} {
		if got := k.isLocal(r); got != want {
			t.Errorf("%v: local %v, want %v", r, got, want)
		}
	}
}

func TestDefinedTypesComeAndGo(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, crds, current)
	w.is(t, apiServices, current)
	w.define()
	w.is(t, widgetType, current) // the next discovery without an event is minutes away
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	owned := w.putOwned("a", a)
	w.has(t, a, true)
	w.has(t, owned, true)

	before := w.changes.Load()
	w.undefine("a")
	w.has(t, a, false)
	fakeapi.Eventually(t, func() error {
		against := w.graph.ownersOf(owned)
		switch {
		case len(against) != 1 || against[0].deletedAt.IsZero():
			return fmt.Errorf("the graph has no deletion event of the owner: %+v", against)
		case len(w.catalogue().kinds[schema.GroupKind{Group: widgetType.Group, Kind: "Widget"}]) > 0 || !w.catalogue().sent.After(against[0].deletedAt):
			return errors.New("no discovery has shown since that the kind is gone")
		case w.changes.Load() == before:
			return errors.New("the change was not reported")
		}
		return nil
	})
	w.is(t, widgetType, "")

	w.define()
	w.is(t, widgetType, current)
	b := w.api.Put(widgetsV1, "widgets", widget("b"))
	w.has(t, b, true)
}

// Three streams deliver the deletions of a definition, its APIService and the last objects, in any order.
func TestDeletionEventsAfterTheDefinitionIsGone(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	owned := w.putOwned("a", a)
	w.start(t)
	w.has(t, a, true)
	w.has(t, owned, true)
	w.areLocal(t)
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	w.api.Remove("apiregistration.k8s.io/v1", "apiservices", "", "v1.example.com")
	w.api.RemoveType(widgetsV1, "widgets")
	w.is(t, widgetType, "")
	if against := w.graph.ownersOf(owned); len(against) != 1 || !against[0].deletedAt.IsZero() {
		t.Errorf("the graph has a deletion event that was never sent: %+v", against)
	}

	w.define()
	b := w.api.Put(widgetsV1, "widgets", widget("b"))
	ofB := w.putOwned("b", b)
	w.has(t, b, true)
	w.has(t, ofB, true)
	w.areLocal(t)
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	sent := w.catalogue().sent
	fakeapi.Eventually(t, func() error {
		if !w.catalogue().sent.After(sent) {
			return errors.New("no discovery since")
		}
		return nil
	})
	w.api.Remove(widgetsV1, "widgets", "ns", "b")
	w.has(t, b, false)
	if against := w.graph.ownersOf(ofB); len(against) != 1 || against[0].deletedAt.IsZero() {
		t.Errorf("the graph lacks the deletion event: %+v", against)
	}
}

func TestPartialDiscoveryRemovesNoType(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	w.start(t)
	w.has(t, a, true)
	w.api.BreakDiscovery(widgetsV1, http.StatusServiceUnavailable)
	asked := w.api.RequestCount("discovery")
	w.service("v1.another.example.com") // any event
	w.api.AddType("another.example.com/v1", metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	w.is(t, schema.GroupResource{Group: "another.example.com", Resource: "gadgets"}, current)
	if w.api.RequestCount("discovery") == asked || w.errors.Load() == 0 {
		t.Errorf("discovery was requested %d times, %d errors", w.api.RequestCount("discovery")-asked, w.errors.Load())
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

func TestDiscoveryWithoutCoreGroupIsIgnored(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.start(t)
	w.is(t, widgetType, current)
	sent := w.catalogue().sent
	w.api.BreakDiscovery("v1", http.StatusInternalServerError)
	w.api.RemoveType("v1", "namespaces")
	failed := w.errors.Load()
	w.service("v1.another.example.com")
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

// Lists fail or hang, as with a broken conversion webhook.
func TestUnlistableTypesDelayNoOtherType(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.api.AddType(widgetsV1, metav1.APIResource{Name: "broken", Kind: "Broken", Namespaced: true})
	w.api.AddType(widgetsV1, metav1.APIResource{Name: "hanging", Kind: "Hanging", Namespaced: true})
	w.api.BreakType(widgetsV1, "broken", http.StatusForbidden)
	heal := w.api.BlockRequests(t, widgetsV1, "hanging")
	w.start(t)
	w.is(t, widgetType, current)
	w.is(t, secretsType, current)
	broken, hanging := schema.GroupResource{Group: "example.com", Resource: "broken"}, schema.GroupResource{Group: "example.com", Resource: "hanging"}
	fakeapi.Eventually(t, func() error {
		if s := w.state(broken); s.err == nil || s.phase == current || s.listingFor(time.Now()) == 0 {
			return fmt.Errorf("the broken type is %+v", s)
		}
		return nil
	})
	if s := w.state(hanging); s.phase == current {
		t.Errorf("the type that does not respond is %+v", s)
	}
	w.api.BreakType(widgetsV1, "broken", 0)
	heal()
	w.api.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: "broken.example.com"})
	w.is(t, broken, current)
	w.is(t, hanging, current)
	if s := w.state(broken); s.err != nil {
		t.Errorf("it works, and still has the error %v", s.err)
	}
}

func TestAnotherVersionKeepsTheObjects(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	w.start(t)
	w.has(t, a, true)
	w.api.RemoveType(widgetsV1, "widgets")
	w.api.AddType("example.com/v2", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	heal := w.api.BlockRequests(t, "example.com/v2", "widgets")
	w.service("v2.example.com")
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); s.Version != "v2" || s.phase != listing {
			return fmt.Errorf("widgets are %+v", s)
		}
		return nil
	})
	w.has(t, a, true)
	heal()
	w.is(t, widgetType, current)
	w.has(t, a, false) // the new list lacks the object
}

// goroutinesOfOurs counts goroutines of this module, without those of HTTP connections.
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

func TestRemovedTypesLeaveNothing(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, crds, current)
	w.is(t, apiServices, current)
	round := func() {
		w.define()
		w.is(t, widgetType, current)
		w.undefine()
		w.is(t, widgetType, "")
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
	w.stop()
	fakeapi.Eventually(t, func() error {
		if n := w.api.OpenWatches(); n > 0 {
			return fmt.Errorf("%d watches are open after the end", n)
		}
		return nil
	})
}

// A single discovery without a type removes nothing: API servers learn of definitions at different times.
func TestTypesAreDroppedAfterTwoDiscoveries(t *testing.T) {
	now := time.Now()
	answer := func(widgets bool) discovery.Result {
		lists := []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "namespaces", Kind: "Namespace"}}}}
		if widgets {
			lists = append(lists, &metav1.APIResourceList{GroupVersion: widgetsV1, APIResources: []metav1.APIResource{
				{Name: "widgets", Kind: "Widget", Verbs: metav1.Verbs{"delete", "list", "watch"}},
			}})
		}
		return discovery.SelectTypes(nil, lists, nil, now, func(r metav1.APIResource) bool { return r.Kind == "Widget" })
	}
	for _, tt := range []struct {
		name    string
		defined bool
		kept    time.Duration
	}{
		{"without a definition", false, removalDelay},
		{"with a definition", true, definitionLag},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(now)
			w := newAPIWorld(t)
			w.define()
			w.build(t, clk)
			if tt.defined {
				check(t, w.graph.feed(objectType{GroupResource: crds}).Add(newThing("", "widgets.example.com", uid(1))))
			}
			phases := func(widgets bool, after time.Duration, want phase, settled bool) {
				t.Helper()
				clk.Step(after)
				if got := w.updateTypes(t.Context(), answer(widgets)); w.state(widgetType).phase != want || got != settled {
					t.Errorf("after %v: phase %q, settled %v, want %q, %v", after, w.state(widgetType).phase, got, want, settled)
				}
				if _, ok := w.latest.kinds[schema.GroupKind{Group: "example.com", Kind: "Widget"}]; ok != (want == listing) {
					t.Errorf("after %v: kind in the catalogue = %v in phase %q", after, ok, want)
				}
			}
			defer func() {
				for _, k := range w.types {
					k.stopFeed()
				}
			}()
			phases(true, 0, listing, true)
			phases(false, time.Second, away, false)
			if s := w.state(widgetType); s.phase == current || s.isServed() {
				t.Errorf("owners may go without the type: %+v", s)
			}
			phases(false, tt.kept-1, away, false)
			phases(true, 0, listing, true)
			phases(false, time.Second, away, false)
			phases(false, tt.kept, "", true)
		})
	}
}

// A definition is deleted after the last of its objects, also if no object was ever listed.
func TestUnlistedTypesAreDropped(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	w.api.BreakType(widgetsV1, "widgets", http.StatusForbidden)
	w.start(t)
	w.is(t, crds, current)
	fakeapi.Eventually(t, func() error {
		if s := w.state(widgetType); s.phase != listing || s.err == nil {
			return fmt.Errorf("widgets are %+v", s)
		}
		return nil
	})
	w.undefine()
	w.is(t, widgetType, "")
	w.api.BreakType(widgetsV1, "widgets", 0)
	w.define()
	w.is(t, widgetType, current)
}

// An API server that has just started may lack types in its discovery.
func TestDiscoveryOfUnreadyServerIsIgnored(t *testing.T) {
	w := newAPIWorld(t)
	w.define()
	a := w.api.Put(widgetsV1, "widgets", widget("a"))
	w.start(t)
	w.is(t, crds, current)
	w.is(t, widgetType, current)
	w.has(t, a, true)
	w.api.SetReadyz(http.StatusInternalServerError)
	moment := time.Now()
	w.api.RemoveType(widgetsV1, "widgets")
	w.api.AddType("other.example.com/v1", metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	w.api.BreakDiscovery("other.example.com/v1", http.StatusServiceUnavailable)
	failed := w.errors.Load()
	fakeapi.Eventually(t, func() error {
		if w.discoveredSince(moment) {
			t.Fatal("owners that leave orphans may go")
		}
		if w.errors.Load() < failed+2 {
			return errors.New("no discovery since")
		}
		return nil
	})
	if s := w.state(widgetType); s.phase == away || s.phase == "" {
		t.Errorf("widgets are %+v", s)
	}
	w.api.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
	w.api.SetReadyz(0)
	w.is(t, widgetType, "")
}

func TestNextDiscovery(t *testing.T) {
	at := func(d time.Duration) time.Time { return began.Add(d) }
	long := at(-time.Hour)
	for _, tt := range []struct {
		name    string
		retries int
		event   time.Time
		awaited bool
		want    time.Duration // after began, when the latest discovery was sent
	}{
		{"nothing to do", 0, long, false, discoveryInterval},
		{"first retry", 1, long, false, time.Second},
		{"third retry", 3, long, false, 4 * time.Second},
		{"later retries", 60, long, false, maxRetryInterval},
		{"event long after", 0, at(time.Minute), false, time.Minute + eventDelays[0]},
		{"event just after", 0, at(1), false, minDiscoveryInterval},
		{"first delay is over", 0, at(-eventDelays[0]), false, eventDelays[1] - eventDelays[0]},
		{"all delays are over", 0, at(-eventDelays[4]), false, discoveryInterval},
		{"event during retries", 60, at(-eventDelays[2]), false, eventDelays[3] - eventDelays[2]},
		{"awaited", 0, long, true, minDiscoveryInterval},
		{"awaited during retries", 60, long, true, minDiscoveryInterval},
	} {
		if got := nextDiscovery(began, tt.retries, tt.event, tt.awaited).Sub(began); got != tt.want {
			t.Errorf("%s: next discovery after %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Waiting owners cause a discovery, also without an event of the new type.
func TestAwaitedDiscoveryIsSent(t *testing.T) {
	w := newAPIWorld(t)
	w.start(t)
	w.is(t, apiServices, current)
	w.api.AddType(widgetsV1, metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
	moment := time.Now()
	if w.discoveredSince(moment) {
		t.Fatal("an earlier discovery counts")
	}
	fakeapi.Eventually(t, func() error {
		if !w.discoveredSince(moment) {
			return errors.New("no discovery")
		}
		return nil
	})
	if s := w.state(widgetType); s.phase == "" {
		t.Error("the type is not known")
	}
	if took := time.Since(moment); took > 8*time.Second {
		t.Errorf("the discovery took %v, as if no owner waited", took)
	}
}
