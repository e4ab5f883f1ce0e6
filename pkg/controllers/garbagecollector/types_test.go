package garbagecollector

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"minikcm/internal/fakeapi"
)

// is waits until a type is in a phase.
func (c *cluster) is(r schema.GroupResource, want phase) {
	c.t.Helper()
	c.wait(3*time.Minute, fmt.Sprintf("%v is %q", r, want), func() bool { return c.types.state(r).phase == want })
}

// shows waits until the graph has an object, or lacks the object.
func (c *cluster) shows(u types.UID, want bool) {
	c.t.Helper()
	c.wait(time.Minute, fmt.Sprintf("%s in the graph: %v", u, want), func() bool {
		_, ok := c.graph.observe(keyOf(u))
		return ok == want
	})
}

// widget puts a widget, and a ReplicaSet with the widget as owner and with a name of a live owner, so that the
// ReplicaSet stays.
func (c *cluster) widget(name string, n int) (widget, owned types.UID) {
	c.put(widgetType, newThing("a", name, uid(n)))
	c.put(replicaSets, newThing("a", name, uid(1000+n)).owned(ref("example.com/v1", "Widget", name, uid(n)), ref("v1", "Node", "n", "node-uid")))
	return uid(n), uid(1000 + n)
}

// deletionSeen reports whether the graph has a deletion event of the first owner of an object.
func (c *cluster) deletionSeen(owned types.UID) bool {
	return !c.graph.ownersOf(owned)[0].deletedAt.IsZero()
}

func (c *cluster) resolves(apiVersion, kind string, want problem) {
	c.t.Helper()
	if at, got := c.types.kindIndex().resolve(reference{apiVersion: apiVersion, kind: kind, name: "x"}, "a"); got != want {
		c.t.Errorf("%s resolves to %v with problem %q, want %q", kind, at, got, want)
	}
}

func TestTypesFollowDiscovery(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.AddType("v1", metav1.APIResource{Name: "events", Kind: "Event", Namespaced: true})
		c.AddType("v1", metav1.APIResource{Name: "componentstatuses", Kind: "ComponentStatus", Verbs: metav1.Verbs{"get", "list"}})
		c.AddType("v1", metav1.APIResource{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}})
		c.define()
		c.owner()
		c.start()
		for _, r := range []schema.GroupResource{configMaps.GroupResource, widgetType.GroupResource, things.GroupResource, crds, apiServices, nodesType.GroupResource, {Resource: "namespaces"}} {
			c.is(r, current)
			fakeapi.Want(t, fmt.Sprint(r, " are local"), c.types.state(r).local, r != things.GroupResource)
		}
		c.shows(uid(1), true)
		c.shows("node-uid", true)
		fakeapi.Want(t, "requests of nodes, which have a cache", c.Count("watch nodes")+c.Count("list nodes"), 0)
		for _, r := range []string{"events", "componentstatuses"} {
			if s := c.types.state(schema.GroupResource{Resource: r}); s.store != nil || s.phase != "" || c.Count("watch "+r) > 0 {
				t.Errorf("%s are watched: %+v", r, s)
			}
		}
		c.resolves("v1", "ConfigMap", fine)
		c.resolves("v1", "ComponentStatus", fine)
		c.resolves("example.com/v1", "Widget", fine)
		c.resolves("v1", "Binding", unknownKind)
		c.resolves("example.com/v1", "Gadget", unknownKind)
	})
}

// A definition comes and goes with its objects. Three streams deliver the deletions of the definition, its APIService
// and the last objects, in any order.
func TestDefinedTypesComeAndGo(t *testing.T) {
	for _, tt := range []struct {
		name string
		go_  func(c *cluster)
		seen bool // the deletion event of the object
	}{
		{"object first", func(c *cluster) {
			c.remove(widgetType, "w", metav1.DeletePropagationBackground)
			c.undefine()
		}, true},
		{"object without event", (*cluster).undefine, false},
		{"definition first", func(c *cluster) {
			c.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
			time.Sleep(time.Minute)
			c.remove(widgetType, "w", metav1.DeletePropagationBackground)
			time.Sleep(time.Second)
			c.undefine()
		}, true},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			c.start()
			c.fail("patch", errPolicy) // references stay
			for n := range 2 {
				c.define()
				c.wait(time.Second, "watched", func() bool { return c.types.state(widgetType.GroupResource).phase == current })
				w, owned := c.widget("w", 10+n)
				c.shows(w, true)
				c.shows(owned, true)
				tt.go_(c)
				c.shows(w, false)
				fakeapi.Want(t, "the graph has a deletion event of the owner", c.deletionSeen(owned), tt.seen)
				c.is(widgetType.GroupResource, "")
				c.resolves("example.com/v1", "Widget", unknownKind)
				c.remove(replicaSets, "w", metav1.DeletePropagationBackground)
			}
		})
	}
}

// The first discovery finds types before the list of their definitions. An owner is deleted before the next discovery.
func TestFirstDeletionAfterTheStartIsSeen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		_, owned := c.widget("w", 10)
		c.fail("patch", errPolicy) // references stay
		time.AfterFunc(headStart+minDiscoveryInterval/2, func() { c.remove(widgetType, "w", metav1.DeletePropagationBackground) })
		c.start()
		fakeapi.Want(t, "the graph has a deletion event of the owner", c.deletionSeen(owned), true)
	})
}

func TestPartialDiscoveryRemovesNoType(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		c.start()
		c.BreakDiscovery("example.com/v1", http.StatusServiceUnavailable)
		c.service("v1.another.example.com") // any event
		c.AddType("another.example.com/v1", metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
		c.is(schema.GroupResource{Group: "another.example.com", Resource: "gadgets"}, current)
		c.is(widgetType.GroupResource, current)
		c.resolves("example.com/v1", "Unheard", undiscovered)
		c.resolves("example.com/v1", "Widget", fine)
		w, _ := c.widget("w", 10)
		c.shows(w, true)
	})
}

// An API server that has just started may lack types in its discovery.
func TestDiscoveryOfUnreadyServerIsIgnored(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		c.start()
		w, _ := c.widget("w", 10)
		c.shows(w, true)
		c.SetReadyz(http.StatusInternalServerError)
		moment := time.Now()
		c.undefine()
		c.AddType("other.example.com/v1", metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
		c.BreakDiscovery("other.example.com/v1", http.StatusServiceUnavailable)
		time.Sleep(time.Minute)
		fakeapi.Want(t, "owners that leave orphans may go", c.types.discoveredSince(moment), false)
		fakeapi.Want(t, "phase of ConfigMaps", c.types.state(configMaps.GroupResource).phase, current)
		fakeapi.Want(t, "phase of widgets", c.types.state(widgetType.GroupResource).phase, listing)
		c.SetReadyz(0)
		c.is(widgetType.GroupResource, "")
	})
}

// Lists fail or hang, as with a broken conversion webhook.
func TestUnlistableTypesDelayNoOtherType(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		broken, hanging := schema.GroupResource{Group: "example.com", Resource: "broken"}, schema.GroupResource{Group: "example.com", Resource: "hanging"}
		c.AddType("example.com/v1", metav1.APIResource{Name: "broken", Kind: "Broken", Namespaced: true})
		c.AddType("example.com/v1", metav1.APIResource{Name: "hanging", Kind: "Hanging", Namespaced: true})
		c.BreakType("example.com/v1", "broken", http.StatusForbidden)
		heal := c.BlockRequests(c.t, "example.com/v1", "hanging")
		c.start()
		for _, r := range []schema.GroupResource{widgetType.GroupResource, configMaps.GroupResource} {
			fakeapi.Want(t, fmt.Sprint("phase of ", r), c.types.state(r).phase, current)
		}
		if s := c.types.state(broken); s.err == nil || s.phase != listing {
			t.Errorf("the broken type is %+v", s)
		}
		fakeapi.Want(t, "phase of the type that hangs", c.types.state(hanging).phase, listing)
		fakeapi.Want(t, "shown as failing", testutil.CollectAndCount(gauges{c.Controller}, "garbagecollector_type_failing"), 1)
		c.BreakType("example.com/v1", "broken", 0)
		heal()
		c.is(broken, current)
		c.is(hanging, current)
		fakeapi.NoError(t, c.types.state(broken).err)
	})
}

// An API server that cannot convert an object rejects every watch of the type with 429. A list would change nothing.
func TestRejectedWatchesShowAsFailing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		c.start()
		failing := func() bool {
			return testutil.CollectAndCount(gauges{c.Controller}, "garbagecollector_type_failing") == 1
		}
		before := c.types.state(widgetType.GroupResource).since
		c.BreakType("example.com/v1", "widgets", http.StatusTooManyRequests)
		for range 10 {
			time.Sleep(time.Minute)
			fakeapi.Want(t, "shown as failing", failing(), true)
		}
		c.BreakType("example.com/v1", "widgets", 0)
		time.Sleep(time.Minute)
		fakeapi.Want(t, "shown as failing after the repair", failing(), false)
		fakeapi.Want(t, "start of the phase", c.types.state(widgetType.GroupResource).since, before)
	})
}

func TestAnotherVersionKeepsTheObjects(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		w, _ := c.widget("w", 10)
		c.start()
		c.RemoveType("example.com/v1", "widgets")
		c.AddType("example.com/v2", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
		heal := c.BlockRequests(c.t, "example.com/v2", "widgets")
		c.service("v2.example.com")
		c.wait(time.Second, "v2 is listed", func() bool {
			s := c.types.state(widgetType.GroupResource)
			return s.Version == "v2" && s.phase == listing
		})
		c.shows(w, true)
		heal()
		c.is(widgetType.GroupResource, current)
		c.shows(w, false) // the new list lacks the object
	})
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
	inCluster(t, func(c *cluster) {
		c.start()
		round := func() int {
			c.define()
			c.is(widgetType.GroupResource, current)
			c.undefine()
			c.is(widgetType.GroupResource, "")
			time.Sleep(time.Minute)
			synctest.Wait()
			return goroutinesOfOurs()
		}
		before := round()
		round()
		if now := round(); now > before {
			t.Errorf("%d goroutines before and %d after", before, now)
		}
		c.end()
		c.stop()
		time.Sleep(time.Second)
		fakeapi.Want(t, "open watches after the end", c.OpenWatches(), 0)
	})
}

// A single discovery without a type removes nothing: API servers learn of definitions at different times. A type whose
// objects were never listed is dropped, too.
func TestTypesAreDroppedAfterTwoDiscoveries(t *testing.T) {
	for _, tt := range []struct {
		name            string
		defined, listed bool
		kept            time.Duration
	}{
		{"without a definition", false, true, removalDelay},
		{"with a definition", true, true, definitionLag},
		{"unlisted", false, false, removalDelay},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			c.define()
			if !tt.defined {
				c.Remove("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "widgets.example.com")
			}
			if !tt.listed {
				c.BreakType("example.com/v1", "widgets", http.StatusForbidden)
			}
			c.start()
			served := func(kind problem) {
				t.Helper()
				c.service("v1.example.com")
				c.wait(time.Second, "discovered", func() bool {
					_, p := c.types.kindIndex().resolve(reference{apiVersion: "example.com/v1", kind: "Widget", name: "x"}, "a")
					return p == kind
				})
			}
			c.RemoveType("example.com/v1", "widgets")
			served(unknownKind)
			if s := c.types.state(widgetType.GroupResource); s.phase != away || s.isServed() {
				t.Errorf("widgets are %+v", s)
			}
			c.AddType("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
			served(fine)
			c.is(widgetType.GroupResource, current)
			c.RemoveType("example.com/v1", "widgets")
			served(unknownKind)
			time.Sleep(tt.kept - 100*time.Millisecond)
			fakeapi.Want(t, "phase of widgets", c.types.state(widgetType.GroupResource).phase, away)
			c.is(widgetType.GroupResource, "")
		})
	}
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
		{"third retry", 3, long, false, 4 * time.Second},
		{"later retries", 60, long, false, maxRetryInterval},
		{"event long after", 0, at(time.Minute), false, time.Minute + eventDelays[0]},
		{"event just after", 0, at(1), false, minDiscoveryInterval},
		{"first delay is over", 0, at(-eventDelays[0]), false, eventDelays[1] - eventDelays[0]},
		{"all delays are over", 0, at(-eventDelays[4]), false, discoveryInterval},
		{"event during retries", 60, at(-eventDelays[2]), false, eventDelays[3] - eventDelays[2]},
		{"awaited during retries", 60, long, true, minDiscoveryInterval},
	} {
		fakeapi.Want(t, tt.name, nextDiscovery(began, tt.retries, tt.event, tt.awaited).Sub(began), tt.want)
	}
}

// While discovery of the watched version fails, the watch stays: another version of an aggregated API may have other
// objects or no watch. Without it, an orphan deletion would end with references left, and the dependent be deleted.
func TestDiscoveryFailsForTheWatchedVersion(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.AddType("far.example.com/v1beta1", metav1.APIResource{Name: things.Resource, Kind: things.kind, Namespaced: true, Verbs: metav1.Verbs{"get", "list"}})
		c.owner()
		c.put(things, newThing("a", "x", uid(50)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		c.start()
		c.BreakDiscovery("far.example.com/v1", http.StatusServiceUnavailable)
		c.service("v1.far.example.com")
		time.Sleep(30 * time.Second)
		c.remove(configMaps, "o", metav1.DeletePropagationOrphan)
		time.Sleep(2 * time.Minute)
		c.BreakDiscovery("far.example.com/v1", 0)
		c.ChangeObject("apiregistration.k8s.io/v1", "apiservices", "", "v1.far.example.com", func(*metav1.PartialObjectMetadata) {})
		c.gone(configMaps, "o", time.Second) // not at the next recheck
		time.Sleep(5 * time.Minute)
		fakeapi.Want(t, "dependent exists", c.object(things, "x") != nil, true)
	})
}
