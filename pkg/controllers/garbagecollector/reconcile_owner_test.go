package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"minikcm/internal/fakeapi"
)

const (
	inForeground = metav1.DeletePropagationForeground
	orphans      = metav1.DeletePropagationOrphan
)

// orphans puts the ConfigMap o with the dependents d0 and d1.
func (c *cluster) orphans() {
	c.owner()
	for n := range 2 {
		c.put(configMaps, newThing("a", fmt.Sprint("d", n), uid(2+n)).owned(ref("v1", "ConfigMap", "o", uid(1))))
	}
}

// Owners are deleted before the term begins. The queues drop keys until then.
func TestCascadesEnd(t *testing.T) {
	for _, tt := range []struct {
		name    string
		owners  [][]int // of each object; objects are numbered from 1
		deleted []int
		policy  metav1.DeletionPropagation
		then    func(*cluster) // may be nil
		left    []string
	}{
		{"a chain goes with its head", [][]int{{}, {1}, {2}}, []int{1}, "Background", nil, nil},
		{"a chain goes from its end", [][]int{{}, {1}, {2}}, []int{1}, "Foreground", nil, nil},
		{"a cycle of three that are all deleted in the foreground", [][]int{{2}, {3}, {1}}, []int{1, 2, 3}, "Foreground", nil, nil},
		{"a cycle of three, of which one is deleted in the foreground", [][]int{{2}, {3}, {1}}, []int{2}, "Foreground", nil, nil},
		{"two cycles that share an object", [][]int{{2, 3}, {1}, {1}}, []int{1, 2, 3}, "Foreground", nil, nil},
		{"a cycle with other objects above and below", [][]int{{4, 2}, {1}, {2}, {}}, []int{4, 1, 2}, "Foreground", nil, nil},
		{"an object that owns itself", [][]int{{1}}, []int{1}, "Foreground", nil, nil},
		{"a cycle without deletion stays", [][]int{{2}, {1}}, nil, "", nil, []string{"o1", "o2"}},
		{"of two owners one stays", [][]int{{}, {}, {1, 2}}, []int{1}, "Foreground", nil, []string{"o2", "o3"}},
		{"orphans stay, with those below them", [][]int{{}, {1, 1}, {2}}, []int{1}, "Orphan", nil, []string{"o2", "o3"}},
		{"a namesake of the owner does not keep its dependents", [][]int{{}, {1}}, []int{1}, "Background",
			func(c *cluster) { c.put(configMaps, newThing("a", "o1", uid(9))) }, []string{"o1"}},
		{"a foreground deletion becomes orphaning", [][]int{{}, {1}, {1}}, []int{1}, "Foreground",
			func(c *cluster) { c.remove(configMaps, "o1", orphans) }, []string{"o2", "o3"}},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			for n, owners := range tt.owners {
				o := newThing("a", fmt.Sprint("o", n+1), uid(n+1))
				for _, owner := range owners {
					o.OwnerReferences = append(o.OwnerReferences, blockingRef("v1", "ConfigMap", fmt.Sprint("o", owner), uid(owner)))
				}
				c.put(configMaps, o)
			}
			begin := c.standBy()
			time.Sleep(time.Minute)
			for _, n := range tt.deleted {
				c.remove(configMaps, fmt.Sprint("o", n), tt.policy)
			}
			if tt.then != nil {
				tt.then(c)
			}
			time.Sleep(time.Second)
			begin()
			time.Sleep(time.Minute) // less than discoveryInterval since the start
			var left []string
			for _, o := range c.ListObjects("v1", "configmaps") {
				left = append(left, o.Name)
			}
			slices.Sort(left)
			fakeapi.WantEqual(t, "objects that are left", left, tt.left)
		})
	}
}

// Without discovery, dependents of unknown types would stay behind.
func TestOwnersWaitForDiscovery(t *testing.T) {
	for name, deleteOwner := range map[string]func(c *cluster) (gone func() bool){
		"foreground": func(c *cluster) func() bool {
			c.SetReadyz(500) // nodes have an informer, so the owner is known before discovery
			now := metav1.Now()
			c.Put("v1", "nodes", metav1.ObjectMeta{Name: "m", UID: uid(1), Finalizers: []string{metav1.FinalizerDeleteDependents}, DeletionTimestamp: &now})
			c.clientset.Put(&corev1.Node{ObjectMeta: c.GetObject("v1", "nodes", "", "m").ObjectMeta})
			c.start()
			return func() bool { return c.GetObject("v1", "nodes", "", "m") == nil }
		},
		"orphan": func(c *cluster) func() bool {
			c.owner()
			c.start()
			c.SetReadyz(500)
			c.remove(configMaps, "o", orphans)
			return func() bool { return c.object(configMaps, "o") == nil }
		},
	} {
		inClusterNamed(t, name, func(t *testing.T, c *cluster) {
			gone := deleteOwner(c)
			time.Sleep(10 * time.Minute)
			if n := c.Count("patch"); n > 0 || c.blocked()[string(causeUnlistedType)] != 1 {
				t.Errorf("%d patches, blocked are %v", n, c.blocked())
			}
			if got := fakeapi.NewEvents(c.events); len(got) == 0 || !strings.Contains(got[0], "any type") {
				t.Errorf("events are %q", got)
			}
			c.SetReadyz(0)
			c.wait(time.Minute, "gone", gone)
		})
	}
}

// A type may be defined, and get objects, just before an owner is deleted.
func TestOrphansOfNewTypes(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.owner()
		c.start()
		c.AddType("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
		c.put(widgetType, newThing("a", "d", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		c.remove(configMaps, "o", orphans)
		c.gone(configMaps, "o", 2*time.Second)
		if o := c.object(widgetType, "d"); o == nil || len(o.OwnerReferences) > 0 {
			t.Errorf("the orphan is %+v", o)
		}
	})
}

// Discovery of another API server may lag behind a new definition. The type may have been served as another API.
func TestOrphansOfDefinedTypeAwaitDiscovery(t *testing.T) {
	for _, typ := range []objectType{widgetType, things} {
		inClusterNamed(t, typ.Group, func(t *testing.T, c *cluster) {
			c.owner()
			c.put(things, newThing("a", "other", uid(2)))
			c.start()
			c.RemoveType(versionFor(things), things.Resource)
			c.service("v1." + things.Group)
			c.is(things.GroupResource, retired)
			c.Put("apiextensions.k8s.io/v1", "customresourcedefinitions", metav1.ObjectMeta{Name: typ.GroupResource.String()})
			time.Sleep(time.Second)
			c.remove(configMaps, "o", orphans)
			time.Sleep(definitionLag - 2*time.Second)
			if got := c.blocked(); c.object(configMaps, "o") == nil || got[string(causeUnlistedType)] != 1 {
				t.Errorf("blocked are %v: orphans of the type would be lost", got)
			}
			c.gone(configMaps, "o", minRecheck+2*time.Second) // the definition was not accepted
		})
	}
}

// The objects of a type may outlast an APIService, or a definition that serves no version, but no definition.
func TestOrphansOfUnservedTypes(t *testing.T) {
	for _, tt := range []struct {
		name          string
		typ           objectType
		before, after time.Duration // without the type, before and after the deletion of the owner
		unseen        bool          // the dependent is created just before the type goes
		undefine      bool          // delete the definition in the end
	}{
		{"aggregated", things, definitionLag, discoveryInterval, false, false},
		{"aggregated, during the deletion", things, 0, discoveryInterval, false, false},
		{"defined", widgetType, 2 * definitionLag, discoveryInterval, false, false},
		{"defined, during the deletion", widgetType, 0, discoveryInterval, false, false},
		{"one API server does not know the definition yet", widgetType, time.Second, definitionLag / 2, true, false},
		{"no longer defined", widgetType, 2 * definitionLag, discoveryInterval, false, true},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			c.define()
			c.owner()
			c.put(configMaps, newThing("a", "other", uid(2)))
			d := newThing("a", "d", uid(3)).owned(ref("v1", "ConfigMap", "o", uid(1)))
			if !tt.unseen {
				c.put(tt.typ, d)
			}
			c.start()
			c.RemoveType(versionFor(tt.typ), tt.typ.Resource)
			c.service("v1." + tt.typ.Group)
			time.Sleep(tt.before)
			c.remove(configMaps, "o", orphans)
			c.remove(configMaps, "other", orphans)
			time.Sleep(tt.after)
			fakeapi.Want(t, "owner exists", c.object(configMaps, "o") != nil, true)
			fakeapi.Want(t, "another owner exists", c.object(configMaps, "other") != nil, tt.unseen)
			if tt.undefine {
				c.undefine()
				c.gone(configMaps, "o", time.Minute)
				return
			}
			c.AddType(versionFor(tt.typ), metav1.APIResource{Name: tt.typ.Resource, Kind: tt.typ.kind, Namespaced: true})
			c.put(tt.typ, d)
			c.service("v1." + tt.typ.Group)
			c.gone(configMaps, "o", time.Minute)
			time.Sleep(discoveryInterval)
			if o := c.object(tt.typ, "d"); o == nil || len(o.OwnerReferences) > 0 {
				t.Errorf("the orphan is %+v", o)
			}
		})
	}
}

// Tests install and delete definitions all the time. A type whose definition was just deleted cannot be listed, and has
// no objects.
func TestDeletedDefinitionBlocksNoOrphans(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.define()
		c.owner()
		c.start()
		c.undefine()
		c.remove(configMaps, "o", orphans)
		c.gone(configMaps, "o", time.Second)
	})
}

// While a type cannot be listed, only this type is listed again. A sweep of all types takes hundreds of requests in a
// large cluster.
func TestOnlyUnlistedTypesAreListedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.orphans()
		c.start()
		c.fail("list replicasets", errOutage)
		c.remove(configMaps, "o", orphans)
		time.Sleep(10 * time.Second)
		for _, name := range []string{"d0", "d1"} {
			fakeapi.Want(t, "references of "+name, len(c.object(configMaps, name).OwnerReferences), 0)
		}
		failed, listed := c.Count("list replicasets"), c.Count("list")
		time.Sleep(5 * time.Minute)
		failed = c.Count("list replicasets") - failed
		if others := c.Count("list") - listed - failed; failed < 5 || failed > 20 || others > 0 || c.object(configMaps, "o") == nil {
			t.Errorf("%d lists of the type and %d other lists in five minutes", failed, others)
		}
		listed = c.Count("list configmaps")
		c.on("list replicasets", nil)
		c.orphaned(minRecheck, "d0", "d1")
		if c.Count("list configmaps") == listed {
			t.Error("the owner went without a sweep of all types")
		}
	})
}

// Orphans whose patch a policy rejects block their owner. No type is listed meanwhile.
func TestRejectedOrphansBlockTheirOwner(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.orphans()
		c.start()
		c.fail("patch configmaps d1", errPolicy)
		c.remove(configMaps, "o", orphans)
		time.Sleep(3 * time.Minute)
		if lists, patches := c.Count("list"), c.Count("patch configmaps d1"); lists > 0 || patches > 6 || c.Count("patch configmaps o") > 0 {
			t.Errorf("%d lists and %d patches", lists, patches)
		}
		if got := fakeapi.NewEvents(c.events); len(got) == 0 || !strings.Contains(got[0], "a policy keeps it") {
			t.Errorf("events are %q", got)
		}
		fakeapi.Want(t, "rejected", c.blocked()[string(causeRejected)], 1)
		c.on("patch configmaps d1", nil)
		c.orphaned(maxRecheck, "d0", "d1")
	})
}

// 200 owners in as many namespaces leave one orphan each, and 200 custom types may have dependents. All sweeps together
// take at most 3 s if each request takes 5 ms.
func TestOwnersOfManyNamespacesShareSweeps(t *testing.T) {
	const owners = 200
	inCluster(t, func(c *cluster) {
		for n := range 200 {
			c.AddType("example.com/v1", metav1.APIResource{Name: fmt.Sprint("t", n), Kind: fmt.Sprint("T", n), Namespaced: true})
		}
		for n := range owners {
			c.put(configMaps, newThing(fmt.Sprint("n", n), "o", uid(1000+n)))
			c.put(configMaps, newThing(fmt.Sprint("n", n), "d", uid(5000+n)).owned(ref("v1", "ConfigMap", "o", uid(1000+n))))
		}
		c.start()
		c.slow("", 5*time.Millisecond)
		for n := range owners {
			c.DeleteObject("v1", "configmaps", fmt.Sprint("n", n), "o", orphans)
		}
		took := c.wait(time.Minute, "all gone", func() bool { return len(c.ListObjects("v1", "configmaps")) == owners })
		if lists := c.Count("list"); took > 3*time.Second || lists > 20*200 {
			t.Errorf("took %v and %d lists", took, lists)
		}
	})
}

// A list of all namespaces also shows references from other namespaces.
func TestOrphansOfOtherNamespacesKeepReferences(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.orphans()
		c.start()
		c.fail("delete", errPolicy)
		c.put(configMaps, newThing("b", "e", uid(9)).owned(ref("v1", "ConfigMap", "o", uid(1))))
		c.remove(configMaps, "o", orphans)
		c.orphaned(time.Minute, "d0", "d1")
		fakeapi.Want(t, "references of the object of another namespace", len(c.GetObject("v1", "configmaps", "b", "e").OwnerReferences), 1)
	})
}

// A type whose lists fail has no dependents of an older list.
func TestPausedTypeHasNoOlderDependents(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.put(replicaSets, newThing("a", "o", uid(1)))
		c.start()
		c.FreezeWatches("v1", "configmaps", true)
		c.dependent(ref("apps/v1", "ReplicaSet", "o", uid(1)))
		c.slow("patch", time.Millisecond)
		c.on("list configmaps", func(ctx context.Context, _ fakeapi.Request, nth int) error {
			if nth == 1 {
				return nil
			}
			return silentFor(ctx, time.Hour)
		})
		c.remove(replicaSets, "o", orphans)
		time.Sleep(2 * time.Minute)
		if got := c.blocked(); got[string(causeUnlistedType)] != 1 || c.Count("patch configmaps d") != 1 {
			t.Errorf("%d patches, blocked are %v", c.Count("patch configmaps d"), got)
		}
	})
}

func TestForEachStopsAfterConsecutiveErrors(t *testing.T) {
	for _, tt := range []struct {
		name        string
		failing     func(n int64) bool
		least, most int64 // calls
	}{
		{"all fail", func(int64) bool { return true }, writesAtOnce, 2 * writesAtOnce},
		{"every second one fails", func(n int64) bool { return n%2 == 0 }, 1000, 1000},
	} {
		var calls atomic.Int64
		err := forEach(t.Context(), make([]object, 1000), func(context.Context, object) error {
			if tt.failing(calls.Add(1)) {
				return errors.New("no")
			}
			return nil
		})
		if got := calls.Load(); err == nil || got < tt.least || got > tt.most {
			t.Errorf("%s: %d calls, error %v, want %d to %d calls and an error", tt.name, got, err, tt.least, tt.most)
		}
	}
}

// A policy may reject the patches of one type of dependents.
func TestForEachReachesObjectsBehindRejected(t *testing.T) {
	all, called := make([]object, 300), make([]atomic.Bool, 300)
	for n := range all {
		all[n].name = strconv.Itoa(n)
	}
	for range 20 {
		_ = forEach(t.Context(), slices.Clone(all), func(_ context.Context, o object) error {
			n, _ := strconv.Atoi(o.name)
			if called[n].Store(true); n < 200 {
				return errRejected
			}
			return nil
		})
	}
	for n := range all {
		if !called[n].Load() {
			t.Errorf("no call for object %d", n)
		}
	}
}

// Failures about an owner are retried, and appear in a metric and an event.
func TestFailuresOfOwnersAreReported(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fails  string
		build  func(*cluster)
		policy metav1.DeletionPropagation
		why    cause
		event  string
	}{
		{"read of the owner", "get configmaps o", (*cluster).owner, inForeground, causeFailed, "failed calling webhook"},
		{"foreground finalizer", "patch configmaps o", (*cluster).owner, inForeground, causeFailed, "failed calling webhook"},
		{"orphan finalizer", "patch configmaps o", (*cluster).owner, orphans, causeFailed, "failed calling webhook"},
		{"orphans", "patch configmaps d", (*cluster).orphans, orphans, causeReferences, "failed calling webhook"},
		{"cycle", "patch configmaps o", func(c *cluster) {
			c.put(configMaps, newThing("a", "o", uid(1)).owned(blockingRef("v1", "ConfigMap", "o2", uid(2))))
			c.put(configMaps, newThing("a", "o2", uid(2)).owned(blockingRef("v1", "ConfigMap", "o", uid(1))))
		}, inForeground, causeDependents, "failed calling webhook"},
		{"dependent with another owner", "get configmaps x", func(c *cluster) {
			c.owner()
			c.dependent(blockingRef("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "x", uid(3)))
		}, inForeground, causeNotRemoved, `its owner v1 ConfigMap "x" is unknown (unable)`},
		{"delete of a dependent", "delete configmaps d", func(c *cluster) {
			c.owner()
			c.dependent(blockingRef("v1", "ConfigMap", "o", uid(1)))
		}, inForeground, causeFailed, "cannot be deleted: "},
	} {
		inClusterNamed(t, tt.name, func(t *testing.T, c *cluster) {
			tt.build(c)
			c.fail(tt.fails, errOutage)
			c.start()
			c.remove(configMaps, "o", tt.policy)
			time.Sleep(3 * reportAfter)
			if got := c.blocked(); got[string(tt.why)] == 0 || c.Count(tt.fails) < 3 {
				t.Errorf("%d requests, blocked are %v, want one for %s", c.Count(tt.fails), got, tt.why)
			}
			if got := fakeapi.NewEvents(c.events); len(got) > 2 || !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, tt.event) }) {
				t.Errorf("events are %q, want %q", got, tt.event)
			}
			c.on(tt.fails, nil)
			c.gone(configMaps, "o", 2*time.Minute)
			c.wait(100*time.Millisecond, "no cause is left", func() bool { return len(c.blocked()) == 0 })
		})
	}
}

// A replica of an aggregated API that lags does not return an owner once.
func TestOwnerIsReadAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.start()
		c.put(things, newThing("a", "t", uid(1)))
		c.on("get things t", func(_ context.Context, _ fakeapi.Request, nth int) error {
			return map[int]error{1: apierrors.NewNotFound(things.GroupResource, "t")}[nth]
		})
		c.remove(things, "t", inForeground)
		c.gone(things, "t", maxRecheck+time.Minute)
	})
}

// A user may remove the finalizer of a blocked owner.
func TestOwnerWithoutFinalizerIsNotCounted(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.put(configMaps, newThing("a", "o", uid(1)).finalizedBy("x/y"))
		c.put(configMaps, newThing("a", "d", uid(2)).finalizedBy("x/y").owned(blockingRef("v1", "ConfigMap", "o", uid(1))))
		c.start()
		c.remove(configMaps, "o", inForeground)
		c.wait(time.Minute, "o is counted", func() bool { return c.blocked()[string(causeFinalizers)] == 1 })
		c.ChangeObject("v1", "configmaps", "a", "o", func(m *metav1.PartialObjectMetadata) { m.Finalizers = []string{"x/y"} })
		c.wait(time.Second, "o is no longer counted", func() bool { return len(c.blocked()) == 0 })
	})
}

// An event about a blocked owner is sent every ten minutes, and its text takes reads. The metric counts from the latest
// change of the blockers.
func TestBlockersAreReadForTheEvent(t *testing.T) {
	inCluster(t, func(c *cluster) {
		wantLongest := func(want time.Duration) {
			t.Helper()
			_, longest := c.state.counts(time.Now())
			fakeapi.Want(t, "longest time without a change", longest.Round(time.Second), want)
		}
		c.owner()
		c.put(configMaps, newThing("a", "d", uid(2)).finalizedBy("x/y").owned(blockingRef("v1", "ConfigMap", "o", uid(1))))
		c.start()
		c.remove(configMaps, "o", inForeground)
		time.Sleep(reportAgain)
		if got := fakeapi.NewEvents(c.events); c.Count("get configmaps d") != 1 || len(got) != 1 || !strings.Contains(got[0], "finalizers x/y") {
			t.Errorf("%d reads of the blocker in ten minutes, events %q", c.Count("get configmaps d"), got)
		}
		wantLongest(reportAgain)
		c.put(configMaps, newThing("a", "e", uid(3)).finalizedBy("x/y").owned(blockingRef("v1", "ConfigMap", "o", uid(1))))
		time.Sleep(time.Minute)
		wantLongest(time.Minute)
		for _, name := range []string{"d", "e"} {
			c.ChangeObject("v1", "configmaps", "a", name, func(o *metav1.PartialObjectMetadata) { o.Finalizers = nil })
		}
		c.gone(configMaps, "o", time.Second)
		time.Sleep(time.Second)
		wantLongest(0)
	})
}

// A foreground deletion waits half a minute for the first list of a type.
func TestForegroundWaitsForFirstLists(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.owner()
		c.start()
		c.AddType("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: true})
		c.BlockRequests(c.t, "example.com/v1", "widgets")
		c.service("v1.example.com")
		c.is(widgetType.GroupResource, listing)
		c.remove(configMaps, "o", inForeground)
		if took := c.gone(configMaps, "o", time.Minute); took < dependentListTimeout-time.Second || took > dependentListTimeout+2*time.Second {
			t.Errorf("the owner went after %v", took)
		}
	})
}
