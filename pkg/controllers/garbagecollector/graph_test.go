package garbagecollector

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	gocmp "github.com/google/go-cmp/cmp"
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

// mayBeGarbage returns the doubts about the references of an object. It returns nil for a virtual node.
func (w *world) doubts(u types.UID) []refStatus {
	_, against, ok := w.graph.observe(keyOf(u))
	if !ok {
		return nil
	}
	doubts := []refStatus{}
	for _, s := range against {
		doubts = append(doubts, s.status)
	}
	return doubts
}

func TestDoubt(t *testing.T) {
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
				if got := w.doubts(uid(3)); !slices.Equal(got, []refStatus{tt.want}) {
					t.Errorf("doubts are %v, want %v", got, tt.want)
				}
				if tt.want != refValid && !slices.Contains(woken, uid(3)) {
					t.Error("there is a doubt, and no object was woken")
				}
				o, _, _ := w.graph.observe(keyOf(uid(3)))
				if want := referenceOf(tt.child.OwnerReferences[0]); !slices.Equal(o.refs, []reference{want}) {
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
			if got := w.doubts(uid(3)); !slices.Equal(got, []refStatus{refValid}) {
				t.Errorf("doubts are %v, want none", got)
			}
			w.do(func() error { return w.feed(projects).Delete(newThing("", "shop", uid(1))) })
			if got := w.doubts(uid(3)); !slices.Equal(got, []refStatus{refValid}) {
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

// model is a slow and plain implementation of the graph.
type model struct {
	objects map[types.UID]modelled
	gone    map[types.UID]objectType // objects with a deletion event
}

type modelled struct {
	typ objectType
	obj *thing
}

func (m model) clone() model {
	c := model{map[types.UID]modelled{}, map[types.UID]objectType{}}
	for u, o := range m.objects {
		c.objects[u] = o
	}
	for u, typ := range m.gone {
		c.gone[u] = typ
	}
	return c
}

func (m model) doubt(from *thing, r metav1.OwnerReference) refStatus {
	owner, ok := m.objects[r.UID]
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	switch {
	case !ok:
		return refVirtual
	case owner.obj.Namespace != "" && owner.obj.Namespace != from.Namespace:
		return refOtherNamespace
	case err != nil || gv.Group != owner.typ.Group || r.Kind != owner.typ.kind || r.Name != owner.obj.Name:
		return refMismatched
	case owner.obj.DeletionTimestamp != nil && slices.Contains(owner.obj.Finalizers, "foregroundDeletion"):
		return refWaiting
	}
	return refValid
}

func (m model) doubts(u types.UID) []refStatus {
	o, ok := m.objects[u]
	if !ok {
		return nil
	}
	doubts := []refStatus{}
	for _, r := range o.obj.OwnerReferences {
		doubts = append(doubts, m.doubt(o.obj, r))
	}
	return doubts
}

// holding counts the references to an owner: all, blocking, idle, waiting.
func (m model) holding(u types.UID) (counts [4]int) {
	for _, o := range m.objects {
		for _, r := range o.obj.OwnerReferences {
			if r.UID != u {
				continue
			}
			if owner := m.objects[u].obj; owner != nil && owner.Namespace != "" && owner.Namespace != o.obj.Namespace {
				continue
			}
			counts[0]++
			if !blocking(r) || o.obj.UID == u {
				continue
			}
			counts[1]++
			switch {
			case o.obj.DeletionTimestamp == nil:
				counts[2]++
			case slices.Contains(o.obj.Finalizers, "foregroundDeletion"):
				counts[3]++
			}
		}
	}
	return counts
}

// referred reports whether an object refers to a UID.
func (m model) referred(u types.UID) bool {
	for _, o := range m.objects {
		if slices.ContainsFunc(o.obj.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == u }) {
			return true
		}
	}
	return false
}

func TestGraphEqualsModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { checkAgainstModel(t, rand.New(rand.NewPCG(seed, 13))) })
	}
}

const population = 7

func checkAgainstModel(t *testing.T, r *rand.Rand) {
	w := newWorld(t)
	kinds := []objectType{configMaps, replicaSets, nodesType}
	m := model{map[types.UID]modelled{}, map[types.UID]objectType{}}
	for step := range 120 {
		typ := kinds[r.IntN(len(kinds))]
		f := w.feed(typ)
		u := uid(r.IntN(population))
		known, exists := m.objects[u]
		before := m.clone()
		var objects, owners []types.UID
		what := ""
		switch op := r.IntN(10); {
		case op < 6 && (!exists || known.typ == typ):
			obj := randomThing(r, typ, u).at(fmt.Sprint(1000 + step))
			if exists {
				obj.Name, obj.Namespace = known.obj.Name, known.obj.Namespace
			}
			what = fmt.Sprintf("put %s", u)
			objects, owners = w.do(func() error { return f.Add(obj) })
			m.objects[u] = modelled{typ, obj}
			delete(m.gone, u)
		case op < 8 && exists:
			what = fmt.Sprintf("delete %s", u)
			event := r.IntN(2) == 0
			var gone any = known.obj
			if !event {
				gone = cache.DeletedFinalStateUnknown{Obj: known.obj}
			}
			objects, owners = w.do(func() error { return w.feed(known.typ).Delete(gone) })
			delete(m.objects, u)
			if event {
				m.gone[u] = known.typ
			}
		case op == 8:
			what = "replace " + typ.Resource
			var list []any
			for _, u := range slices.Sorted(maps.Keys(m.objects)) {
				o := m.objects[u]
				if o.typ != typ {
					continue
				}
				if r.IntN(2) == 0 {
					delete(m.objects, u)
					continue
				}
				list = append(list, o.obj)
			}
			if fresh := uid(r.IntN(population)); m.objects[fresh].obj == nil && before.objects[fresh].obj == nil {
				obj := randomThing(r, typ, fresh).at(fmt.Sprint(1000 + step))
				m.objects[fresh] = modelled{typ, obj}
				delete(m.gone, fresh)
				list = append(list, obj)
			}
			objects, owners = w.do(func() error { return f.Replace(list, fmt.Sprint(step)) })
		case op == 9 && r.IntN(4) == 0:
			what = "forget " + typ.Resource
			objects, owners = w.do(func() error { w.graph.dropFeed(f); return nil })
			for u, o := range m.objects {
				if o.typ == typ {
					delete(m.objects, u)
				}
			}
		default:
			continue
		}
		for u := range m.gone { // unreferenced deletions are dropped
			if !m.referred(u) {
				delete(m.gone, u)
			}
		}
		checkStep(t, w, before, m, objects, owners, what)
	}
}

func randomThing(r *rand.Rand, typ objectType, u types.UID) *thing {
	namespace := []string{"a", "b"}[r.IntN(2)]
	if typ == nodesType {
		namespace = ""
	}
	obj := newThing(namespace, []string{"n", "m"}[r.IntN(2)], u).at(fmt.Sprint(1 + r.IntN(100)))
	for range r.IntN(3) {
		kind := []metav1.OwnerReference{
			ref("v1", "ConfigMap", "", ""), ref("apps/v1", "ReplicaSet", "", ""), ref("v1", "Node", "", ""), ref("example.com/v1/x", "Widget", "", ""),
		}[r.IntN(4)]
		kind.Name, kind.UID = []string{"n", "m"}[r.IntN(2)], uid(r.IntN(population+2))
		if r.IntN(2) == 0 {
			kind.BlockOwnerDeletion = new(true)
		}
		obj.OwnerReferences = append(obj.OwnerReferences, kind)
	}
	if r.IntN(3) == 0 {
		obj.finalizedBy([]string{"x/y", "foregroundDeletion", "orphan"}[r.IntN(3)])
	}
	if r.IntN(3) == 0 {
		obj.deleted()
	}
	return obj
}

func checkStep(t *testing.T, w *world, before, now model, objects, owners []types.UID, what string) {
	t.Helper()
	for n := range population + 2 {
		u := uid(n)
		doubts := now.doubts(u)
		if got := w.doubts(u); !slices.Equal(got, doubts) || (got == nil) != (doubts == nil) {
			t.Fatalf("%s: doubts of %s are %v, want %v", what, u, got, doubts)
		}
		o := now.objects[u].obj
		d, ok := w.graph.dependentsOf(keyOf(u), 3)
		held := now.holding(u)
		if got := [4]int{len(w.graph.referring(keyOf(u))), d.blocking, d.idle, d.waiting}; ok && got != held || ok != (o != nil) {
			t.Fatalf("%s: dependents of %s are %v (%v), want %v", what, u, got, ok, held)
		}
		if o == nil {
			continue
		}
		if got, want := d.owner, snapshotOf(now.objects[u]); !gocmp.Equal(got, want, gocmp.AllowUnexported(object{}, reference{})) {
			t.Fatalf("%s: %s is %+v, want %+v", what, u, got, want)
		}
		_, against, _ := w.graph.observe(keyOf(u))
		if live := w.graph.observeOwners(objectOf(now.objects[u].typ.GroupResource, o)); !slices.Equal(live, against) {
			t.Fatalf("%s: against the references of %s there is %v, and %v once it is read live", what, u, against, live)
		}
		for i, s := range against {
			typ := now.gone[o.OwnerReferences[i].UID]
			told := typ.kind == o.OwnerReferences[i].Kind && typ.kind != ""
			if told == s.deletedAt.IsZero() {
				t.Fatalf("%s: deletion of the owner %s of %s told: %v, want %v", what, o.OwnerReferences[i].UID, u, !s.deletedAt.IsZero(), told)
			}
		}
		if newDoubt(before.doubts(u), doubts) && o.DeletionTimestamp == nil && !slices.Contains(objects, u) {
			t.Fatalf("%s: %s went from doubts %v to %v and was not woken", what, u, before.doubts(u), doubts)
		}
		was := before.objects[u].obj
		if isFinishing(o) && (was == nil || !isFinishing(was) || before.holding(u) != held) && !slices.Contains(owners, u) {
			t.Fatalf("%s: owner %s has to be looked at and was not woken", what, u)
		}
	}
	checkTidy(t, w, now, what)
}

// newDoubt reports whether a reference has a doubt for the first time.
func newDoubt(before, now []refStatus) bool {
	for i, d := range now {
		if d != refValid && (i >= len(before) || before[i] != d) {
			return true
		}
	}
	return false
}

func isFinishing(o *thing) bool {
	return o.DeletionTimestamp != nil && slices.ContainsFunc(o.Finalizers, func(f string) bool { return f != "x/y" })
}

func snapshotOf(m modelled) object {
	o := objectOf(m.typ.GroupResource, m.obj)
	o.live = nil
	return o
}

// checkTidy fails if the graph keeps unneeded entries.
func checkTidy(t *testing.T, w *world, now model, what string) {
	t.Helper()
	g := w.graph
	nodes := map[types.UID]bool{}
	refs := 0
	for u, o := range now.objects {
		nodes[u] = true
		for _, r := range o.obj.OwnerReferences {
			nodes[r.UID] = true
			refs++
		}
	}
	objects, absent, edges := g.size()
	if objects != len(now.objects) || objects+absent != len(nodes) || edges != refs {
		t.Fatalf("%s: %d objects, %d absent, %d references, want %d, %d, %d", what, objects, absent, edges, len(now.objects), len(nodes)-len(now.objects), refs)
	}
	if len(g.deletions) != len(now.gone) {
		t.Fatalf("%s: %d deletions, want %d", what, len(g.deletions), len(now.gone))
	}
}

func TestGraphDoesNotDependOnTheOrderOfEvents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 13))
	for range 20 {
		var things []modelled
		for n := range population {
			typ := []objectType{configMaps, replicaSets, nodesType}[r.IntN(3)]
			things = append(things, modelled{typ, randomThing(r, typ, uid(n))})
		}
		var first string
		for range 4 {
			r.Shuffle(len(things), func(i, j int) { things[i], things[j] = things[j], things[i] })
			w := newWorld(t)
			for _, o := range things {
				w.do(func() error { return w.feed(o.typ).Add(o.obj) })
			}
			all := w.graph.all()
			slices.SortFunc(all.objects, func(a, b id) int { return cmp.Compare(a.String(), b.String()) })
			slices.SortFunc(all.owners, func(a, b id) int { return strings.Compare(a.String(), b.String()) })
			var say strings.Builder
			fmt.Fprint(&say, all)
			for n := range population {
				d, _ := w.graph.dependentsOf(keyOf(uid(n)), 0)
				fmt.Fprint(&say, w.doubts(uid(n)), d)
			}
			if first == "" {
				first = say.String()
			}
			if say.String() != first {
				t.Fatalf("in another order the graph says\n%s\nand not\n%s", say.String(), first)
			}
		}
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
