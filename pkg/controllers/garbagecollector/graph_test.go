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
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
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

// thing builds an object of a store.
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

// world is a graph with the objects that changes have queued.
type world struct {
	*graph
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	queued []id
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(began)}
	w.graph = newGraph(w.clock, func(more queueKeys) { w.queued = append(w.queued, more.objects...) })
	return w
}

func (w *world) add(typ objectType, o *thing) {
	w.t.Helper()
	fakeapi.NoError(w.t, w.storeFor(typ).Add(o))
}

func (w *world) delete(typ objectType, o *thing) {
	w.t.Helper()
	fakeapi.NoError(w.t, w.storeFor(typ).Delete(o))
}

func (w *world) replace(typ objectType, all ...any) {
	w.t.Helper()
	fakeapi.NoError(w.t, w.storeFor(typ).Replace(all, "5"))
}

// ownersOf returns the observations of the owners of an object.
func (g *graph) ownersOf(u types.UID) []ownerObservation {
	o, _ := g.observe(keyOf(u))
	owners, _ := g.observeOwners(o)
	return owners
}

// status returns the status of the first reference of an object.
func (w *world) status(u types.UID) refStatus { return w.ownersOf(u)[0].status }

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
		{"in no namespace, and the kind in lower case", newThing("", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1", "replicaset", "o", uid(owner))), refValid},
		{"a version that cannot be read", newThing("a", "o", uid(owner)), newThing("a", "c", uid(3)).owned(ref("apps/v1/x", "ReplicaSet", "o", uid(owner))), refMismatched},
		{"a virtual owner", nil, newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refVirtual},
		{"an owner that is being deleted in the background", newThing("a", "o", uid(owner)).finalizedBy("x/y").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"one that makes orphans", newThing("a", "o", uid(owner)).finalizedBy("orphan").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"one that waits for its dependents", newThing("a", "o", uid(owner)).finalizedBy("foregroundDeletion").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refWaiting},
		{"one with both finalizers of the collector", newThing("a", "o", uid(owner)).finalizedBy("orphan", "foregroundDeletion").deleted(), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"one that would wait, were it deleted", newThing("a", "o", uid(owner)).finalizedBy("foregroundDeletion"), newThing("a", "c", uid(3)).owned(ref("apps/v1", "ReplicaSet", "o", uid(owner))), refValid},
		{"itself", nil, newThing("a", "c", uid(3)).owned(ref("v1", "ConfigMap", "c", uid(3))), refValid},
	} {
		for _, ownerFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, owner first %v", tt.name, ownerFirst), func(t *testing.T) {
				w := newWorld(t)
				if tt.owner != nil && ownerFirst {
					w.add(replicaSets, tt.owner)
				}
				w.add(configMaps, tt.child)
				if tt.owner != nil && !ownerFirst {
					w.add(replicaSets, tt.owner)
				}
				fakeapi.Want(t, "status", w.status(uid(3)), tt.want)
				if tt.want != refValid && !slices.Contains(w.queued, keyOf(uid(3))) {
					t.Error("no object was queued")
				}
				o, _ := w.observe(keyOf(uid(3)))
				if want := testReference(tt.child.OwnerReferences[0]); !slices.Equal(o.refs, []reference{want}) {
					t.Errorf("references are %v, want what is written: %v", o.refs, want)
				}
			})
		}
	}
}

func TestLocalTypeWinsOverAggregatedType(t *testing.T) {
	namespaces := objectType{schema.GroupResource{Resource: "namespaces"}, "Namespace", true}
	projects := objectType{schema.GroupResource{Group: "project.openshift.io", Resource: "projects"}, "Project", false}
	for _, order := range [][]objectType{{namespaces, projects}, {projects, namespaces}} {
		t.Run(order[0].Resource+" first", func(t *testing.T) {
			w := newWorld(t)
			for _, typ := range order {
				w.replace(typ, newThing("", "shop", uid(1)))
			}
			w.add(configMaps, newThing("a", "c", uid(3)).owned(ref("v1", "Namespace", "shop", uid(1))))
			fakeapi.Want(t, "status", w.status(uid(3)), refValid)
			w.delete(projects, newThing("", "shop", uid(1)))
			fakeapi.Want(t, "status without the project", w.status(uid(3)), refValid)
			fakeapi.Want(t, "namespaces", w.storeFor(namespaces).objectCount(), 1)
			fakeapi.Want(t, "projects", w.storeFor(projects).objectCount(), 0)
		})
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
	w.add(configMaps, newThing("a", "c", "odd").owned(ref("v1", "Node", "n", "odder")))
	o, ok := w.observe(keyOf("odd"))
	if !ok || o.uid != "odd" || o.refs[0].uid != "odder" {
		t.Errorf("the object is %+v, want the UIDs as they are written", o)
	}
	w.replace(configMaps)
	fakeapi.Want(t, "texts of removed objects", len(w.texts), 0)
	w.replace(widgets, newThing("a", "computed", ""))
	objects, _, _ := w.size()
	fakeapi.Want(t, "objects without UID", objects, 0)
}

// size counts objects, virtual nodes and references.
func (g *graph) size() (objects, absent, refs int) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for _, n := range g.nodes {
		if n.store != nil {
			objects++
		} else {
			absent++
		}
		for e := n.refs; e != nil; e = e.nextRef {
			refs++
		}
	}
	return objects, absent, refs
}

func TestFirstSightOfReferences(t *testing.T) {
	one, two := ref("v1", "ConfigMap", "o", uid(1)), ref("v1", "ConfigMap", "p", uid(2))
	renamed, blocks := one, one
	renamed.Name = "q"
	blocks.BlockOwnerDeletion = new(true)
	for _, tt := range []struct {
		name string
		refs [][]metav1.OwnerReference // one change per second
		want []time.Duration
	}{
		{"a new object", [][]metav1.OwnerReference{{one}}, []time.Duration{0}},
		{"its status is written", [][]metav1.OwnerReference{{one}, {one}}, []time.Duration{0}},
		{"another owner adopts it", [][]metav1.OwnerReference{{one}, {two, one}}, []time.Duration{time.Second, time.Second}},
		{"the reference blocks now", [][]metav1.OwnerReference{{one}, {blocks}}, []time.Duration{time.Second}},
		{"it is put right", [][]metav1.OwnerReference{{renamed}, {one}}, []time.Duration{time.Second}},
		{"it was away", [][]metav1.OwnerReference{{one}, nil, {one}}, []time.Duration{2 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for n, refs := range tt.refs {
				w.clock.SetTime(began.Add(time.Duration(n) * time.Second))
				w.add(configMaps, newThing("a", "d", uid(9)).at(fmt.Sprint(n+1)).owned(refs...))
			}
			w.clock.SetTime(began.Add(time.Minute))
			var got []time.Duration
			for _, s := range w.ownersOf(uid(9)) {
				got = append(got, s.refSeen.Sub(began))
			}
			fakeapi.WantEqual(t, "first sights of references", got, tt.want)
		})
	}
	t.Run("read live, before its event", func(t *testing.T) {
		w := newWorld(t)
		w.add(configMaps, newThing("a", "d", uid(9)).owned(one))
		live := objectOf(configMaps.GroupResource, newThing("a", "d", uid(9)).owned(one, two))
		live.readAt = began.Add(time.Second)
		w.clock.SetTime(began.Add(time.Minute))
		if got, _ := w.observeOwners(live); got[0].refSeen != live.readAt || got[1].refSeen != live.readAt {
			t.Errorf("references are seen since %v and %v, want %v, when they were read", got[0].refSeen, got[1].refSeen, live.readAt)
		}
		live.refs = live.refs[:1]
		if got, _ := w.observeOwners(live); got[0].refSeen != began {
			t.Errorf("the reference is seen since %v, want %v, as in the graph", got[0].refSeen, began)
		}
	})
}

// An aggregated API server may show an object with the UID of another object, and a reference may name a wrong kind.
func TestDeletionEventsCountForTheirKindOnly(t *testing.T) {
	view := newThing("a", "o", uid(1))
	for _, tt := range []struct {
		name      string
		ref       metav1.OwnerReference
		from      objectType // shows the object and its deletion
		withdrawn bool       // another type reports the deletion of its view, too
		seen      bool
	}{
		{"its own", ref("v1", "ConfigMap", "o", uid(1)), configMaps, false, true},
		{"its own, under another name", ref("v1", "ConfigMap", "p", uid(1)), configMaps, false, true},
		{"another type's", ref("apps/v1", "ReplicaSet", "o", uid(1)), configMaps, false, false},
		{"a kind that was never served", ref("does.not/exist", "Wrong", "o", uid(1)), configMaps, false, false},
		{"a server that may show it again", ref("example.com/v1", "Widget", "o", uid(1)), widgets, false, false},
		{"a view that is withdrawn afterwards", ref("v1", "ConfigMap", "o", uid(1)), configMaps, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.add(nodesType, newThing("", "d", uid(2)).owned(tt.ref))
			w.add(tt.from, view)
			w.delete(tt.from, view)
			if tt.withdrawn {
				w.delete(widgets, view)
			}
			fakeapi.Want(t, "deletion event", !w.ownersOf(uid(2))[0].deletedAt.IsZero(), tt.seen)
		})
	}
}

func TestNumericVersions(t *testing.T) {
	for version, want := range map[string]uint64{"": 0, "0": 0, "7": 7, "18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "007": 0, "+7": 0, "-7": 0, "7a": 0} {
		fakeapi.Want(t, "number of version "+version, numberOf(version), want)
	}
}

// One response must not count twice: once because the graph lacks the owner since then, and once as the response.
func TestRemovedOwnersNeedLaterEvidence(t *testing.T) {
	w := newWorld(t)
	w.add(configMaps, newThing("a", "o", uid(1)))
	w.add(replicaSets, newThing("a", "d", uid(2)).owned(ref("v1", "ConfigMap", "o", uid(1))))
	w.clock.SetTime(began.Add(time.Hour))
	w.removeNotFound(keyOf(uid(1)))
	if got := w.ownersOf(uid(2))[0]; got.status != refVirtual || !got.refSeen.Equal(began.Add(time.Hour)) {
		t.Errorf("the graph has %+v, want evidence from after the denial", got)
	}
}

func TestTransformerDropsUnusedMetadata(t *testing.T) {
	o := newThing("a", "c", uid(1)).owned(ref("v1", "Node", "n", uid(2)))
	o.Labels, o.Annotations, o.ManagedFields = map[string]string{"a": "b"}, map[string]string{"a": "b"}, []metav1.ManagedFieldsEntry{{}}
	got, err := newWorld(t).storeFor(configMaps).Transformer()(&o.PartialObjectMetadata)
	kept, ok := got.(*metav1.PartialObjectMetadata)
	if err != nil || !ok || kept.Labels != nil || kept.Annotations != nil || kept.ManagedFields != nil || kept.UID != uid(1) || len(kept.OwnerReferences) != 1 {
		t.Errorf("kept is %+v (%v)", got, err)
	}
}

func TestDefinitionsFollowTheirObjects(t *testing.T) {
	typ, w := objectType{crds, "CustomResourceDefinition", true}, newWorld(t)
	want := func(what string, names map[string]int) {
		t.Helper()
		fakeapi.WantEqual(t, what, w.definitions(), names)
	}
	w.replace(typ, newThing("", "a", uid(1)), newThing("", "b", uid(2)))
	w.add(typ, newThing("", "a", uid(1)).at("9"))
	w.replace(typ, newThing("", "a", uid(3)), newThing("", "b", uid(2)))
	want("a was created again", map[string]int{"a": 1, "b": 1})
	w.removeNotFound(keyOf(uid(2)))
	w.delete(typ, newThing("", "b", uid(2)))
	want("b was not found, then deleted", map[string]int{"a": 1})
	w.delete(typ, newThing("", "a", uid(3)))
	want("all deleted", map[string]int{})
}
