package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

// Ten thousand objects that a policy keeps must not cause a request per minute each.
func TestRejectedDeletionBacksOff(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start()
		c.fail("delete", errPolicy)
		c.dependent()
		for range 100 {
			time.Sleep(200 * time.Millisecond)
			c.resync() // a key before its time
		}
		if reads, deletes := c.Count("get"), c.Count("delete"); deletes != 5 || reads > deletes+1 {
			t.Errorf("%d deletes and %d reads in 20 s, want deletes after 2, 3, 5, 9 and 17 s", deletes, reads)
		}
		fakeapi.Want(t, "rejected", c.blocked()[string(causeRejected)], 1)
		fakeapi.Want(t, "requests_total", testutil.ToFloat64(c.metrics.requests.WithLabelValues(requestDelete, string(rejected))), 5)
		time.Sleep(2 * time.Hour)
		deletes := c.Requests("delete")
		last := deletes[len(deletes)-1].At
		fakeapi.Want(t, "last pause between deletes", last.Sub(deletes[len(deletes)-2].At).Round(time.Second), maxRejectedBackoff)
		c.on("delete", nil)
		c.gone(configMaps, "d", maxRejectedBackoff)
		time.Sleep(pruneEvery)
		fakeapi.Want(t, "blocked after the deletion", len(c.blocked()), 0)
	})
}

// A change of the object or of its owners may mean another decision, so the pause after a rejection does not delay the
// next sync.
func TestRejectionDoesNotDelayOtherDecision(t *testing.T) {
	o, p := ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "p", uid(3))
	inCluster(t, func(c *cluster) {
		c.start()
		c.put(configMaps, newThing("a", "p", uid(3)))
		c.fail("delete", errPolicy)
		c.dependent(o)
		time.Sleep(time.Hour)
		c.dependent(o, p)
		c.wait(2*confirmAfter, "released", func() bool { return len(c.object(configMaps, "d").OwnerReferences) == 1 })
	})
	inCluster(t, func(c *cluster) {
		c.start()
		c.put(configMaps, newThing("a", "p", uid(3)))
		c.fail("patch", errPolicy)
		c.dependent(o, p)
		time.Sleep(time.Hour)
		c.remove(configMaps, "p", metav1.DeletePropagationBackground)
		c.gone(configMaps, "d", time.Second)
	})
}

// An object may get dependents while its request waits. In a foreground deletion the dependents go first.
func TestNewDependentMakesForegroundDeletion(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.owner()
		c.dependent(blockingRef("v1", "ConfigMap", "o", uid(1)))
		c.start()
		c.on("delete configmaps d", func(_ context.Context, _ fakeapi.Request, nth int) error {
			if nth == 1 {
				c.put(configMaps, newThing("a", "e", uid(3)).owned(ref("v1", "ConfigMap", "d", uid(2))))
				c.ChangeObject("v1", "configmaps", "a", "d", func(*metav1.PartialObjectMetadata) {})
				time.Sleep(time.Second)
			}
			return nil
		})
		c.remove(configMaps, "o", metav1.DeletePropagationForeground)
		c.gone(configMaps, "o", time.Minute)
		var policies []string
		for _, r := range c.Requests("delete configmaps d") {
			policies = append(policies, string(*r.Delete.PropagationPolicy))
		}
		fakeapi.Want(t, "policies", strings.Join(policies, " "), "Background Foreground")
	})
}

// An aggregated API may ignore preconditions, so its objects are read shortly before a delete.
func TestAggregatedObjectIsReadBeforeDelete(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start()
		release := c.holdSlots()
		c.put(things, newThing("a", "w", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		time.Sleep(5 * time.Second)
		c.FreezeWatches("far.example.com/v1", "things", true)
		c.ChangeObject("far.example.com/v1", "things", "a", "w", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = nil })
		time.Sleep(5 * time.Second)
		release()
		time.Sleep(time.Minute)
		if reads := c.Count("get things w"); reads < 2 || c.Count("delete") > 0 {
			t.Errorf("%d reads and %d deletes", reads, c.Count("delete"))
		}
	})
}

// Objects of a type that is no longer served can neither be deleted nor patched. Their owners are not read either.
func TestNoRequestsForUnservedTypes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		c.owner()
		d, f := newThing("a", "d", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1))), newThing("a", "f", uid(5)).owned(blockingRef("v1", "ConfigMap", "p", uid(6)))
		c.put(widgetType, d)
		c.put(widgetType, newThing("a", "e", uid(3)))
		c.put(widgetType, f)
		c.put(configMaps, newThing("a", "b", uid(4)).finalizedBy("x/y").owned(blockingRef("example.com/v1", "Widget", "e", uid(3))))
		c.put(configMaps, newThing("a", "p", uid(6)))
		c.start()
		c.remove(widgetType, "e", metav1.DeletePropagationForeground)
		time.Sleep(time.Second)
		c.RemoveType("example.com/v1", "widgets")
		c.service("v1.example.com")
		c.is(widgetType.GroupResource, away)
		sent := func() int { return c.Count("get") + c.Count("delete") + c.Count("patch") }
		before := sent()
		c.remove(configMaps, "o", metav1.DeletePropagationBackground)
		c.remove(configMaps, "p", metav1.DeletePropagationForeground)
		c.ChangeObject("v1", "configmaps", "a", "b", func(o *metav1.PartialObjectMetadata) { o.Finalizers = nil })
		for _, now := range []phase{away, retired} {
			c.is(widgetType.GroupResource, now)
			time.Sleep(definitionLag / 2)
			c.resync()
			time.Sleep(time.Second)
			fakeapi.Want(t, fmt.Sprint("requests while ", now), sent()-before, 0)
			fakeapi.Want(t, "recheck of the owner", fakeapi.Must(c.reconcileOwner(t.Context(), keyOf(uid(3)))).RequeueAfter, minRecheck)
		}
		if got := fakeapi.NewEvents(c.events); len(got) == 0 || !strings.Contains(got[0], `"a/f" has a type that the API server does not serve`) {
			t.Errorf("events are %q", got)
		}
		c.define()
		c.put(widgetType, d)
		c.put(widgetType, f)
		c.gone(widgetType, "d", time.Minute)
		c.gone(configMaps, "p", time.Second)
	})
}

// A deletion event of an aggregated API is no proof, but causes a read, also of an owner that was found before.
func TestDeletionEventOfAggregatedAPICausesRead(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.put(things, newThing("a", "w", uid(9)))
		c.fail("watch things", errOutage)
		c.fail("list things", errOutage)
		c.dependent(ref("far.example.com/v1", "Thing", "w", uid(9)))
		c.start()
		fakeapi.Want(t, "reads until the next poll", c.Count("get things w"), 1)
		c.on("watch things", nil)
		c.on("list things", nil)
		c.wait(2*time.Minute, "watched", func() bool { return c.types.state(things.GroupResource).phase == current })
		c.remove(things, "w", metav1.DeletePropagationBackground)
		c.gone(configMaps, "d", 2*confirmAfter)
	})
}

// A dry run sends no write, counts every attempt, and backs off as after a rejection.
func TestDryRunSendsNothingAndBacksOff(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start(func(cfg *Config) { cfg.DryRun = true })
		for n := range 20 {
			c.put(configMaps, newThing("a", fmt.Sprint("d", n), uid(10+n)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		}
		time.Sleep(time.Minute)
		fakeapi.Want(t, "lasting objects after a minute", testutil.ToFloat64(c.metrics.lasting), 0)
		time.Sleep(time.Minute)
		lasting, counted := testutil.ToFloat64(c.metrics.lasting), testutil.ToFloat64(c.metrics.dryRun.WithLabelValues(requestDelete))
		if lasting != 20 || counted != 20*lastingRejections || c.rejected.Load() != 20 {
			t.Errorf("after two minutes %v objects are lasting, %v deletes are counted, and %d are logged", lasting, counted, c.rejected.Load())
		}
		fakeapi.Want(t, "writes", c.Count("delete")+c.Count("patch"), 0)
	})
}

// Owners may change while a request waits for a slot.
func TestDecisionIsCheckedBeforeTheRequest(t *testing.T) {
	rest := func(*cluster) { time.Sleep(readValidFor + time.Second) }
	for _, tt := range []struct {
		name    string
		exists  bool // the owner, in a foreground deletion
		happens func(c *cluster)
		stays   bool
	}{
		{"foreground deletion", true, func(*cluster) {}, false},
		{"old read of the foreground deletion", true, rest, false},
		{"owner is orphaning", true, func(c *cluster) { c.remove(configMaps, "o", metav1.DeletePropagationOrphan) }, true},
		{"owner is orphaning, and its watch is frozen", true, func(c *cluster) {
			c.FreezeWatches("v1", "configmaps", true)
			c.remove(configMaps, "o", metav1.DeletePropagationOrphan)
			rest(c)
		}, true},
		{"absent owner", false, func(*cluster) {}, false},
		{"old read of an absent owner", false, rest, false},
		{"owner appears", false, func(c *cluster) { c.owner() }, true},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			c.start()
			release := c.holdSlots()
			if tt.exists {
				c.owner()
			}
			c.dependent(blockingRef("v1", "ConfigMap", "o", uid(1)))
			c.remove(configMaps, "o", metav1.DeletePropagationForeground)
			time.Sleep(5 * time.Second)
			tt.happens(c)
			time.Sleep(time.Second)
			release()
			time.Sleep(5 * time.Second)
			fakeapi.Want(t, "the dependent stays", c.object(configMaps, "d") != nil, tt.stays)
		})
	}
}

// The author of an object chooses names in its references. A name may be another path of the API. Objects of
// aggregated API servers may have such names, too.
func TestNoRequestsForNamesOfOtherPaths(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start()
		c.dependent(ref("v1", "ConfigMap", "../services/http:evil:80/proxy/x", "any"))
		c.put(things, newThing("a", "x/y", uid(3)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		c.put(replicaSets, newThing("a", "../z", uid(4)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		c.gone(configMaps, "d", time.Minute)
		time.Sleep(time.Minute)
		if deletes := c.Count("delete"); deletes != 1 || c.Count("get") != c.Count("get configmaps o") || c.blocked()[string(causeRejected)] != 1 {
			t.Errorf("%d deletes, want 1; blocked are %v; requests %v", deletes, c.blocked(), c.Requests("get"))
		}
	})
}

// A read of the same sync stays valid until the last owner was read.
func TestSlowReadsOfManyOwnersTakeOneSync(t *testing.T) {
	for _, tt := range []struct {
		name    string
		typ     objectType
		owners  int
		takes   time.Duration // of a read
		waiting bool          // the owners wait for the dependent
		objects int           // with these owners
		most    int           // reads
	}{
		{"aggregated API, almost timing out", things, 1, readTimeout - 100*time.Millisecond, false, 1, 3},
		{"a thousand absent owners", configMaps, 1000, time.Millisecond, false, 1, 3000},
		{"fifty absent owners", configMaps, 50, 8 * time.Second, false, 1, 150},
		{"fifty waiting owners", configMaps, 50, 8 * time.Second, true, 1, 150},
		{"three hundred dependents share reads", configMaps, 20, 50 * time.Millisecond, false, 300, 25},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			c.start()
			var refs []metav1.OwnerReference
			for n := range tt.owners {
				o := newThing("a", fmt.Sprint("o", n), uid(10+n))
				refs = append(refs, blockingRef(versionFor(tt.typ), tt.typ.kind, o.Name, o.UID))
				if tt.waiting {
					c.put(tt.typ, o)
				}
			}
			c.slow("get "+tt.typ.Resource, tt.takes)
			for n := range tt.objects { // not in the same order
				first := n % tt.owners
				c.put(tt.typ, newThing("a", fmt.Sprint("d", n), uid(5000+n)).owned(slices.Concat(refs[first:], refs[:first])...))
			}
			for _, r := range refs {
				c.remove(tt.typ, r.Name, metav1.DeletePropagationForeground)
			}
			c.gone(tt.typ, "d0", 10*time.Minute)
			time.Sleep(time.Minute)
			if reads := c.Count("get " + tt.typ.Resource + " o"); c.Count("delete") != tt.objects || reads > tt.most {
				t.Errorf("%d deletes after %d reads", c.Count("delete"), reads)
			}
		})
	}
}

// A sync that waits for long without a request would count as stuck.
func TestWritesWithoutSlotAreNotStuck(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start(func(cfg *Config) { cfg.Workers = 2 * writesInFlight })
		release := c.holdSlots()
		c.dependent()
		for range 10 {
			time.Sleep(time.Minute)
			fakeapi.NoError(t, c.Healthy())
		}
		release()
		c.gone(configMaps, "d", slotTimeout)
	})
}

// Some policies reject requests with a conflict.
func TestConflictWithoutChangeIsRejection(t *testing.T) {
	for _, tt := range []struct {
		name   string
		build  func(c *cluster)
		prefix string
		most   int // requests in 29 s
	}{
		{"delete", func(c *cluster) { c.dependent() }, "delete", 5},
		{"finalizer", func(c *cluster) {
			c.owner()
			c.remove(configMaps, "o", metav1.DeletePropagationForeground)
		}, "patch", 2},
		{"orphans", func(c *cluster) {
			c.orphans()
			c.remove(configMaps, "o", metav1.DeletePropagationOrphan)
		}, "patch", 6},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			c.start()
			c.fail(tt.prefix, errStale)
			tt.build(c)
			time.Sleep(29 * time.Second)
			if n := c.Count(tt.prefix); n == 0 || n > tt.most || c.blocked()[string(causeRejected)] != 1 {
				t.Errorf("%d requests, want at most %d; blocked are %v", n, tt.most, c.blocked())
			}
		})
	}
}

// Objects of an ignored type stay. Owners of an ignored type are read.
func TestIgnoredTypes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start(func(cfg *Config) { cfg.Ignored = []string{"configmaps"} })
		c.put(configMaps, newThing("a", "lives", uid(3)))
		c.dependent()
		c.put(replicaSets, newThing("a", "leaves", uid(4)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		c.put(replicaSets, newThing("a", "kept", uid(5)).owned(ref("v1", "ConfigMap", "lives", uid(3))))
		c.gone(replicaSets, "leaves", 5*time.Second)
		time.Sleep(time.Hour)
		fakeapi.Want(t, "an object of an ignored type is there", c.object(configMaps, "d") != nil, true)
		fakeapi.Want(t, "an object with an owner of an ignored type is there", c.object(replicaSets, "kept") != nil, true)
		fakeapi.Want(t, "lists and watches of an ignored type", c.Count("list configmaps")+c.Count("watch configmaps"), 0)
	})
}

// A webhook delays the deletes in one namespace. Dependents in another namespace go meanwhile.
func TestSlowDeletesDelayNoOtherNamespace(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start()
		c.on("delete", func(ctx context.Context, r fakeapi.Request, _ int) error {
			if r.Namespace == "slow" {
				return silentFor(ctx, 30*time.Second)
			}
			return nil
		})
		for n := range 500 {
			c.put(configMaps, newThing("slow", fmt.Sprint("d", n), uid(100+n)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		}
		for range 20 {
			time.Sleep(10 * time.Second)
			c.dependent()
			c.gone(configMaps, "d", confirmAfter+time.Second)
		}
		c.wait(10*time.Minute, "all gone", func() bool { return len(c.ListObjects("v1", "configmaps")) == 0 })
	})
}
