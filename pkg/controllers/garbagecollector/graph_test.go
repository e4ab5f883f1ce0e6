package garbagecollector

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// Types of tests.
var (
	configMaps  = objectType{schema.GroupResource{Resource: "configmaps"}, "ConfigMap", true}
	replicaSets = objectType{schema.GroupResource{Group: "apps", Resource: "replicasets"}, "ReplicaSet", true}
	nodesType   = objectType{schema.GroupResource{Resource: "nodes"}, "Node", true}
	widgets     = objectType{schema.GroupResource{Group: "example.com", Resource: "widgets"}, "Widget", false}
)

// uid returns a UUID with a number.
func uid(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", n)) }

func keyOf(u types.UID) id { key, _ := idOf(u); return key }

// thing builds an object of a feed.
type thing struct{ metav1.PartialObjectMetadata }

func newThing(namespace, name string, u types.UID) *thing {
	t := &thing{}
	t.Namespace, t.Name, t.UID, t.ResourceVersion = namespace, name, u, "1"
	return t
}

func (t *thing) owned(refs ...metav1.OwnerReference) *thing {
	t.OwnerReferences = refs
	return t
}

func (t *thing) at(version string) *thing {
	t.ResourceVersion = version
	return t
}

func (t *thing) finalizedBy(finalizers ...string) *thing {
	t.Finalizers = finalizers
	return t
}

func (t *thing) deleted() *thing {
	t.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return t
}

func ref(apiVersion, kind, name string, u types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: u}
}

func testReference(r metav1.OwnerReference) reference {
	return reference{apiVersion: r.APIVersion, kind: r.Kind, name: r.Name, uid: r.UID, blocking: blocking(r)}
}

func blockingRef(apiVersion, kind, name string, u types.UID) metav1.OwnerReference {
	r := ref(apiVersion, kind, name, u)
	r.BlockOwnerDeletion = new(true)
	return r
}

// world is a graph with the objects that changes have woken.
type world struct {
	t     *testing.T
	graph *graph
	clock *clocktesting.FakePassiveClock
	woken queueKeys
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	w.graph = newGraph(w.clock, func(more queueKeys) {
		w.woken.objects = append(w.woken.objects, more.objects...)
		w.woken.owners = append(w.woken.owners, more.owners...)
	})
	return w
}

func (w *world) feed(typ objectType) *feed {
	w.t.Helper()
	return w.graph.feed(typ)
}

// do runs a change and returns the woken objects, sorted.
func (w *world) do(change func() error) (objects, owners []types.UID) {
	w.t.Helper()
	w.woken = queueKeys{}
	if err := change(); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.woken.objects {
		objects = append(objects, types.UID(s.String()))
	}
	for _, o := range w.woken.owners {
		owners = append(owners, types.UID(o.String()))
	}
	slices.Sort(objects)
	slices.Sort(owners)
	return slices.Compact(objects), slices.Compact(owners)
}

// statuses returns the status of each reference of an object.
func (w *world) statuses(u types.UID) (all []refStatus) {
	_, owners, _ := w.graph.observe(keyOf(u))
	for _, o := range owners {
		all = append(all, o.status)
	}
	return all
}

func TestRefStatus(t *testing.T) {
	const owner, other = 1, 2
	for _, tt := range []struct {
		name  string
		owner *thing // a ReplicaSet; may be nil
		child *thing
		want  refStatus
	}{
		{"an owner that is seen", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"in another version of its group", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1beta2", "ReplicaSet", "o", uid(owner))), refValid},
		{"in another group", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("extensions/v1beta1", "ReplicaSet", "o", uid(owner))), refMismatched},
		{"of another kind", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "Deployment", "o", uid(owner))), refMismatched},
		{"under another name", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "p", uid(owner))), refMismatched},
		{"with another UID", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(other))), refVirtual},
		{"in another namespace", newThing("b", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refOtherNamespace},
		{"in a namespace, of what is in none", newThing("b", "o", uid(owner)), newThing("", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refOtherNamespace},
		{"in no namespace", newThing("", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"a version that cannot be read", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1/x", "ReplicaSet", "o", uid(owner))), refMismatched},
		{"an owner that nobody has seen", nil, newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refVirtual},
		{"a UID that is no UUID", nil, newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", "mine")), refVirtual},
		{"an owner that is being deleted in the background", newThing("a", "o", uid(owner)).finalizedBy("x/y").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"one that makes orphans", newThing("a", "o", uid(owner)).finalizedBy("orphan").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"one that waits for its dependents", newThing("a", "o", uid(owner)).finalizedBy("foregroundDeletion").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refWaiting},
		{"one that would wait, were it deleted", newThing("a", "o", uid(owner)).finalizedBy("foregroundDeletion"), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"itself", nil, newThing("a", "c", uid(3)).owned(ref("v1", "ConfigMap", "c", uid(3))), refValid},
	} {
		for _, ownerFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, owner first %v", tt.name, ownerFirst), func(t *testing.T) {
				w := newWorld(t)
				owners, children := w.feed(replicaSets), w.feed(configMaps)
				steps := []func() error{func() error { return children.Add(tt.child) }}
				if tt.owner != nil {
					steps = append(steps, func() error { return owners.Add(tt.owner) })
				}
				if ownerFirst {
					slices.Reverse(steps)
				}
				woken := []types.UID{}
				for _, step := range steps {
					objects, _ := w.do(step)
					woken = append(woken, objects...)
				}
				if got := w.statuses(uid(3)); !slices.Equal(got, []refStatus{tt.want}) {
					t.Errorf("doubts are %v, want %v", got, tt.want)
				}
				if tt.want != refValid && !slices.Contains(woken, uid(3)) {
					t.Error("there is a doubt, and no object was woken")
				}
				o, _, _ := w.graph.observe(keyOf(uid(3)))
				if want := testReference(tt.child.OwnerReferences[0]); !slices.Equal(o.refs, []reference{want}) {
					t.Errorf("references are %v, want what is written: %v", o.refs, want)
				}
			})
		}
	}
}

func TestDeletionEventsAreKept(t *testing.T) {
	child := func() *thing { return newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(1))) }
	owner := func() *thing { return newThing("a", "o", uid(1)) }
	for _, tt := range []struct {
		name   string
		change func(w *world, owners *feed) error
		told   bool
	}{
		{"an event tells", func(_ *world, f *feed) error { return f.Delete(owner()) }, true},
		{"a tombstone does not", func(_ *world, f *feed) error {
			return f.Delete(cache.DeletedFinalStateUnknown{Key: "a/o", Obj: owner()})
		}, false},
		{"a list without it does not", func(_ *world, f *feed) error { return f.Replace(nil, "9") }, false},
		{"a type that is no longer watched does not", func(w *world, f *feed) error { w.graph.dropFeed(f); return nil }, false},
		{"a namesake that took its place does not", func(_ *world, f *feed) error {
			f.Changed(owner(), newThing("a", "o", uid(7)))
			return nil
		}, false},
		{"an event that came after a list without it tells", func(_ *world, f *feed) error {
			if err := f.Replace(nil, "9"); err != nil {
				return err
			}
			return f.Delete(owner())
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			owners := w.feed(replicaSets)
			w.do(func() error { return owners.Add(owner()) })
			w.do(func() error { return w.feed(configMaps).Add(child()) })
			objects, _ := w.do(func() error { return tt.change(w, owners) })
			if !slices.Equal(objects, []types.UID{uid(3)}) {
				t.Errorf("woken are %v, want the dependent", objects)
			}
			_, against, _ := w.graph.observe(keyOf(uid(3)))
			want := ownerObservation{status: refVirtual, refSeen: w.clock.Now()}
			if tt.told {
				want.deletedAt, want.anyDeletedAt = w.clock.Now(), w.clock.Now()
			}
			if len(against) != 1 || against[0] != want {
				t.Errorf("against its owner there is %v, want %v", against, want)
			}
		})
	}
}

func TestLocalTypeWinsOverAggregatedType(t *testing.T) {
	namespaces := objectType{schema.GroupResource{Resource: "namespaces"}, "Namespace", true}
	projects := objectType{schema.GroupResource{Group: "project.openshift.io", Resource: "projects"}, "Project", false}
	for _, order := range [][]objectType{{namespaces, projects}, {projects, namespaces}} {
		t.Run(order[0].Resource+" first", func(t *testing.T) {
			w := newWorld(t)
			for _, typ := range order {
				w.do(func() error { return w.feed(typ).Replace([]any{newThing("", "shop", uid(1))}, "5") })
			}
			w.do(func() error {
				return w.feed(configMaps).Add(newThing("a", "c", uid(3)).owned(ref("v1", "Namespace", "shop", uid(1))))
			})
			if got := w.statuses(uid(3)); !slices.Equal(got, []refStatus{refValid}) {
				t.Errorf("doubts are %v, want none", got)
			}
			w.do(func() error { return w.feed(projects).Delete(newThing("", "shop", uid(1))) })
			if got := w.statuses(uid(3)); !slices.Equal(got, []refStatus{refValid}) {
				t.Errorf("the project was deleted, the namespace not: doubts are %v, want none", got)
			}
			if a, b := w.feed(namespaces).objectCount(), w.feed(projects).objectCount(); a != 1 || b != 0 {
				t.Errorf("%d namespaces and %d projects, want one namespace", a, b)
			}
		})
	}
}

func TestWhatBlocksAnOwner(t *testing.T) {
	w := newWorld(t)
	w.do(func() error {
		return w.feed(replicaSets).Add(newThing("a", "o", uid(1)).finalizedBy("foregroundDeletion").deleted().
			owned(blockingRef("apps/v1", "ReplicaSet", "o", uid(1))))
	})
	blocks := blockingRef("apps/v1", "ReplicaSet", "o", uid(1))
	for n, c := range []*thing{
		newThing("a", "idle", uid(10)).owned(blocks),
		newThing("a", "free", uid(11)).owned(ref("apps/v1", "ReplicaSet", "o", uid(1))),
		newThing("a", "held", uid(12)).owned(blocks).finalizedBy("x/y").deleted(),
		newThing("a", "waits", uid(13)).owned(blocks).finalizedBy("foregroundDeletion").deleted(),
		newThing("b", "stranger", uid(14)).owned(blocks),
		newThing("", "nowhere", uid(15)).owned(blocks),
		newThing("a", "misnamed", uid(16)).owned(blockingRef("apps/v1", "ReplicaSet", "x", uid(1))),
	} {
		if _, owners := w.do(func() error { return w.feed(configMaps).Add(c) }); !slices.Contains(owners, uid(1)) {
			t.Errorf("dependent %d: woken owners are %v, want the one that waits", n, owners)
		}
	}
	d, ok := w.graph.dependentsOf(keyOf(uid(1)), 3)
	var names []string
	for _, b := range d.some {
		names = append(names, b.name)
	}
	if !ok || d.blocking != 4 || d.idle != 2 || d.waiting != 1 || len(names) != 3 || len(w.graph.referring(keyOf(uid(1)))) != 6 {
		t.Errorf("dependents are %+v (%v), want 4 that block: 2 idle, 1 waiting", d, names)
	}
}

func TestNodesAndEdgesAreSmall(t *testing.T) {
	if n, e := unsafe.Sizeof(node{}), unsafe.Sizeof(edge{}); n != 80 || e != 80 {
		t.Errorf("a node takes %d bytes and an edge %d, want 80 and 80", n, e)
	}
}

func TestUIDs(t *testing.T) {
	for _, tt := range []struct {
		uid   types.UID
		exact bool
	}{
		{"01234567-89ab-cdef-0123-456789abcdef", true},
		{"01234567-89AB-cdef-0123-456789abcdef", false},
		{"01234567x89ab-cdef-0123-456789abcdef", false},
		{"0123456789abcdef0123456789abcdef", false},
		{"a node's name", false},
	} {
		key, exact := idOf(tt.uid)
		if exact != tt.exact || exact && key.String() != string(tt.uid) {
			t.Errorf("id of %q is %v, exact %v, want exact %v", tt.uid, key, exact, tt.exact)
		}
	}
	w := newWorld(t)
	w.do(func() error {
		return w.feed(configMaps).Add(newThing("a", "c", "odd").owned(ref("v1", "Node", "n", "odder")))
	})
	o, _, ok := w.graph.observe(keyOf("odd"))
	if !ok || o.uid != "odd" || o.refs[0].uid != "odder" {
		t.Errorf("the object is %+v, want the UIDs as they are written", o)
	}
	w.do(func() error { return w.feed(configMaps).Replace(nil, "2") })
	if len(w.graph.texts) != 0 {
		t.Errorf("texts %v are kept for nothing", w.graph.texts)
	}
}

func TestObjectsWithoutUIDAreNotKept(t *testing.T) {
	w := newWorld(t)
	w.do(func() error { return w.feed(widgets).Replace([]any{newThing("a", "made up", "")}, "2") })
	if objects, _, _ := w.graph.size(); objects != 0 {
		t.Errorf("%d objects, want none", objects)
	}
}

// size counts objects, virtual nodes and references.
func (g *graph) size() (objects, absent, refs int) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for _, n := range g.nodes {
		if n.marks.has(observed) {
			objects++
		} else {
			absent++
		}
		for e := n.refs; e != nil; e = e.next {
			refs++
		}
	}
	return objects, absent, refs
}
