package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"minikcm/internal/fakeapi"
	"minikcm/pkg/controller"
)

// collector calls the reconcile functions of a controller one at a time, on keys in random order. A test delivers
// events to the graph, and the hooks of the API server check each write.
type collector struct {
	*fakeapi.Types
	*Controller
	t       *testing.T
	r       *rand.Rand
	clock   *clocktesting.FakeClock
	serial  int
	read    map[schema.GroupResource]int // events of each type that the graph has
	objects map[id]bool                  // queued
	owners  map[id]bool                  // queued
	faults  bool
	frozen  schema.GroupResource // no event of this type is delivered

	names int           // number of object names; few names are reused soon
	pace  time.Duration // longest time between two steps

	lock  sync.Mutex // of the hooks
	trace []string
}

// stored is an object of the API server.
type stored struct {
	typ objectType
	obj *thing
}

func (c *collector) note(format string, args ...any) {
	c.trace = append(c.trace, fmt.Sprintf(format, args...))
}

// fail fails the test, which ends with the next step.
func (c *collector) fail(format string, args ...any) {
	c.t.Helper()
	if !c.t.Failed() {
		c.t.Log(strings.Join(c.trace[max(0, len(c.trace)-60):], "\n"))
	}
	c.t.Errorf(format, args...)
}

// all returns the objects of the API server, ordered by UID.
func (c *collector) all() (all []stored) {
	for _, typ := range simulated {
		for _, o := range c.ListObjects(versionFor(typ), typ.Resource) {
			all = append(all, stored{typ, &thing{*o}})
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return strings.Compare(string(a.obj.UID), string(b.obj.UID)) })
	return all
}

func ownersOf(o *thing) (names []string) {
	for _, r := range o.OwnerReferences {
		names = append(names, fmt.Sprintf("%s %s/%v", r.Kind, r.Name, blocking(r)))
	}
	return names
}

func (c *collector) change(o stored, change func(*metav1.PartialObjectMetadata)) {
	c.ChangeObject(versionFor(o.typ), o.typ.Resource, o.obj.Namespace, o.obj.Name, change)
}

func (c *collector) delete(o stored, policy metav1.DeletionPropagation) {
	c.note("delete %s %s", o.obj.Name, policy)
	c.DeleteObject(versionFor(o.typ), o.typ.Resource, o.obj.Namespace, o.obj.Name, policy)
}

// owner returns the owner that a reference names, or nil.
func (c *collector) owner(from *thing, r metav1.OwnerReference) *thing {
	for _, o := range c.all() {
		if o.obj.UID == r.UID && o.obj.Name == r.Name && o.typ.kind == r.Kind && (o.obj.Namespace == "" || o.obj.Namespace == from.Namespace) {
			return o.obj
		}
	}
	return nil
}

var simulated = []objectType{configMaps, replicaSets, nodesType}

// simulatedKind returns a type as discovery shows it.
func simulatedKind(typ objectType) apiType {
	return apiType{GroupVersionResource: typ.WithVersion("v1"), kind: typ.kind, namespaced: typ != nodesType, versions: []string{"v1"}, local: true}
}

var simulatedKinds = newKindIndex(began, nil, simulatedKind(configMaps), simulatedKind(replicaSets), simulatedKind(nodesType))

// start replaces the process.
func (c *collector) start() {
	c.note("a new process")
	c.read, c.objects, c.owners = map[schema.GroupResource]int{}, map[id]bool{}, map[id]bool{}
	c.Controller, _ = newTestController(c.Types, fakeapi.BusyClient(c.t), c.clock, DefaultConfig(), &record.FakeRecorder{})
	c.graph.enqueue, c.types.latest = c.queue, simulatedKinds
	for _, typ := range simulated {
		c.relist(typ)
	}
	c.queue(c.graph.candidateKeys())
}

func (c *collector) queue(keys queueKeys) {
	for _, key := range keys.objects {
		c.objects[key] = true
	}
	for _, o := range keys.owners {
		c.owners[o] = true
	}
}

// relist replaces the objects of a type by a list.
func (c *collector) relist(typ objectType) {
	var list []any
	for _, o := range c.ListObjects(versionFor(typ), typ.Resource) {
		list = append(list, o)
	}
	of, store := typ.GroupResource, c.graph.storeFor(typ)
	c.read[of] = len(c.Events(versionFor(typ), typ.Resource))
	c.types.types[of] = &knownType{typeState: typeState{apiType: simulatedKind(typ), phase: current, since: c.clock.Now(), store: store}}
	fakeapi.NoError(c.t, store.Replace(list, "1"))
}

// deliver delivers the next event of a type.
func (c *collector) deliver(typ objectType) bool {
	events, of := c.Events(versionFor(typ), typ.Resource), typ.GroupResource
	if c.read[of] == len(events) {
		return false
	}
	event := events[c.read[of]]
	c.read[of]++
	do := c.graph.storeFor(typ).Update
	if event.Type == "DELETED" {
		do = c.graph.storeFor(typ).Delete
	}
	fakeapi.NoError(c.t, do(event.Object.DeepCopy()))
	return true
}

// chance returns random numbers for a request. Concurrent requests have no order, so time, verb and name decide.
func (c *collector) chance(of fakeapi.Request) *rand.Rand {
	hash := fnv.New64a()
	fmt.Fprint(hash, of.What, of.Namespace)
	return rand.New(rand.NewPCG(uint64(c.clock.Now().UnixNano()), hash.Sum64()))
}

// before fails a quarter of all requests while there are faults, and changes objects before writes.
func (c *collector) before(_ context.Context, of fakeapi.Request) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	verb, resource, _ := strings.Cut(strings.TrimSuffix(of.What, " "+of.Name), " ")
	gr := schema.GroupResource{Resource: resource}
	if r := c.chance(of); c.faults && r.IntN(4) == 0 {
		return []error{
			apierrors.NewGenericServerResponse(http.StatusNotFound, verb, gr, of.Name, "404 page not found", 0, true),
			apierrors.NewForbidden(gr, of.Name, nil), apierrors.NewInternalError(errors.New("of a test")),
		}[r.IntN(3)]
	}
	if p := of.Delete.Preconditions; verb == "delete" && (p == nil || p.UID == nil || p.ResourceVersion == nil) {
		c.fail("%s is deleted by name", of.Name)
	}
	if (verb == "delete" || verb == "patch") && c.chance(fakeapi.Request{What: "change", Name: of.Name}).IntN(3) == 0 {
		for _, o := range c.all() {
			if o.typ.Resource == resource && o.obj.Name == of.Name && o.obj.Namespace == of.Namespace {
				c.changeMeanwhile(o)
			}
		}
	}
	return nil
}

// after checks an accepted write. While there are faults, a quarter of the responses is lost.
func (c *collector) after(of fakeapi.Request, old, now *metav1.PartialObjectMetadata) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	var lost error
	if c.faults && c.chance(fakeapi.Request{What: "lost", Name: of.Name}).IntN(4) == 0 {
		lost = apierrors.NewTimeoutError("no response", 0)
	}
	if resource, deleted := strings.CutPrefix(of.What, "delete "); deleted {
		c.note("%s %s", of.What, *of.Delete.PropagationPolicy)
		n := slices.IndexFunc(simulated, func(typ objectType) bool { return typ.Resource == strings.TrimSuffix(resource, " "+of.Name) })
		c.checkRemoval(simulated[n].kind, &thing{*old})
		return lost
	}
	c.note("%s: owners %v, finalizers %v", of.What, ownersOf(&thing{*now}), now.Finalizers)
	c.checkPatch(&thing{*old}, &thing{*now})
	return lost
}

// reconcileSome calls a reconcile function with one of the queued keys, the same for the same seed.
func (c *collector) reconcileSome(keys map[id]bool, reconcile func(context.Context, id) (controller.Result, error)) {
	if len(keys) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(keys), func(a, b id) int { return slices.Compare(a[:], b[:]) })
	key := all[c.r.IntN(len(all))]
	delete(keys, key)
	c.types.latest.sent = c.clock.Now() // types are discovered all the time
	c.clock.SetTime(c.clock.Now().Add(1))
	result, err := reconcile(c.t.Context(), key)
	keys[key] = keys[key] || err != nil || result.RequeueAfter > 0
}

// changeMeanwhile changes an object as other clients do.
func (c *collector) changeMeanwhile(o stored) {
	switch n := c.r.IntN(12); {
	case n < 4 && o.obj.DeletionTimestamp == nil:
		c.changeOwners(o)
	case n < 6:
		c.delete(o, metav1.DeletePropagationOrphan)
	default:
		c.note("meanwhile, a status of %s", o.obj.Name)
		c.change(o, func(*metav1.PartialObjectMetadata) {})
	}
}

// checkRemoval: nothing is deleted that has an owner, as its references are written, that lives.
func (c *collector) checkRemoval(kind string, o *thing) {
	c.t.Helper()
	for _, r := range o.OwnerReferences {
		owner := c.owner(o, r)
		if r.UID == o.UID && r.Name == o.Name && r.Kind == kind {
			owner = o
		}
		if owner != nil && !marksOf(owner).waiting() {
			c.fail("%s is deleted, and its owner %s lives", o.Name, owner.Name)
		}
		if _, p := simulatedKinds.resolve(testReference(r), o.Namespace); p != fine {
			c.fail("%s is deleted, and its owner %v cannot be known", o.Name, r)
		}
	}
	if len(o.OwnerReferences) == 0 {
		c.fail("%s is deleted without ever having had an owner", o.Name)
	}
}

// checkPatch checks that an object loses no reference to a live owner, and that an owner goes after its dependents.
func (c *collector) checkPatch(was, now *thing) {
	c.t.Helper()
	for _, r := range was.OwnerReferences {
		kept := slices.ContainsFunc(now.OwnerReferences, func(other metav1.OwnerReference) bool {
			other.BlockOwnerDeletion = r.BlockOwnerDeletion
			return reflect.DeepEqual(other, r)
		})
		if owner := c.owner(was, r); !kept && owner != nil && !marksOf(owner).finishing() {
			c.fail("%s loses its reference to %s, which is not being deleted", now.Name, owner.Name)
		}
	}
	if slices.Equal(was.Finalizers, now.Finalizers) {
		return
	}
	orphans := marksOf(was).has(orphaning)
	for _, s := range c.all() {
		o := s.obj
		for _, r := range o.OwnerReferences {
			// As in kube-controller-manager, the graph decides about a foreground deletion: a dependent whose event is
			// late goes after its owner.
			shown, _ := c.graph.observe(keyOf(o.UID))
			late := !slices.Equal(shown.refs, objectOf(schema.GroupResource{}, o).refs)
			inScope := now.Namespace == "" || now.Namespace == o.Namespace
			if r.UID == now.UID && (orphans || blocking(r) && o.UID != now.UID && !late) && inScope {
				c.fail("%s loses its finalizer, and %s still refers to it", now.Name, o.Name)
			}
		}
	}
}

// act changes objects as users and other controllers do.
func (c *collector) act() {
	all := c.all()
	if len(all) == 0 || len(all) < 25 && c.r.IntN(2) == 0 {
		c.serial++
		typ := simulated[c.r.IntN(len(simulated))]
		o := newThing([]string{"a", "b"}[c.r.IntN(2)], fmt.Sprint("o", c.r.IntN(c.names)), uid(c.serial))
		if typ == nodesType {
			o.Namespace = ""
		}
		if c.GetObject(versionFor(typ), typ.Resource, o.Namespace, o.Name) != nil {
			return
		}
		o.OwnerReferences = c.someOwners(o)
		if c.r.IntN(6) == 0 {
			o.finalizedBy([]string{"x/y", "orphan", "foregroundDeletion"}[c.r.IntN(3)])
		}
		c.Put(versionFor(typ), typ.Resource, o.ObjectMeta)
		c.note("create %s %v", o.Name, ownersOf(o))
		return
	}
	o := all[c.r.IntN(len(all))]
	switch c.r.IntN(6) {
	case 0, 1:
		c.delete(o, []metav1.DeletionPropagation{"Background", "Foreground", "Orphan"}[c.r.IntN(3)])
	case 2: // a status is written
		c.change(o, func(*metav1.PartialObjectMetadata) {})
	case 3:
		if o.obj.DeletionTimestamp == nil {
			c.changeOwners(o)
		}
	case 4:
		c.letGo(o)
	}
}

func (c *collector) changeOwners(o stored) {
	refs := c.someOwners(o.obj)
	c.note("new owners of %s: %v", o.obj.Name, refs)
	c.change(o, func(m *metav1.PartialObjectMetadata) { m.OwnerReferences = refs })
}

// letGo removes a foreign finalizer.
func (c *collector) letGo(o stored) {
	c.change(o, func(m *metav1.PartialObjectMetadata) {
		m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == "x/y" })
	})
}

// someOwners returns references to live objects, and some invalid references.
func (c *collector) someOwners(from *thing) (refs []metav1.OwnerReference) {
	all := c.all()
	for range c.r.IntN(3) {
		if len(all) == 0 {
			break
		}
		o := all[c.r.IntN(len(all))]
		if o.obj.DeletionTimestamp != nil {
			continue // new dependents of a terminating owner have no guarantee
		}
		r := ref(versionFor(o.typ), o.typ.kind, o.obj.Name, o.obj.UID)
		switch c.r.IntN(24) {
		case 0:
			r.UID = uid(100_000 + c.r.IntN(5)) // never existed
		case 1:
			r.Name += "x"
		case 2:
			r.Kind = "Unknown"
		}
		if c.r.IntN(2) == 0 {
			r.BlockOwnerDeletion = new(true)
		}
		if !slices.ContainsFunc(refs, func(other metav1.OwnerReference) bool { return other.UID == r.UID && other.Name == r.Name }) {
			refs = append(refs, r)
		}
	}
	return refs
}

func (c *collector) step() {
	if c.t.Failed() {
		c.t.FailNow()
	}
	c.clock.SetTime(c.clock.Now().Add(1 + time.Duration(c.r.Int64N(int64(c.pace)))))
	switch n := c.r.IntN(10); {
	case n < 3:
		if typ := simulated[c.r.IntN(len(simulated))]; typ.GroupResource != c.frozen {
			c.deliver(typ)
		}
	case n < 6:
		c.reconcileSome(c.objects, c.reconcileObject)
	case n < 8:
		c.reconcileSome(c.owners, c.reconcileOwner)
	case c.r.IntN(60) == 0:
		c.start()
	case c.r.IntN(40) == 0:
		c.relist(simulated[c.r.IntN(len(simulated))])
	case c.r.IntN(4) == 0:
		c.faults = !c.faults
	case c.r.IntN(10) == 0:
		c.frozen = append(simulated, objectType{})[c.r.IntN(len(simulated)+1)].GroupResource
	}
}

// Users create, own and delete objects in every way. Events are late, reads fail, and the process is killed. No object
// with a live owner is deleted, no owner goes too early, and in the end no garbage is left.
func TestSimulation(t *testing.T) {
	seeds := uint64(40)
	if os.Getenv("LONG") != "" {
		seeds = 450
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := newCollector(t, seed)
			c.start()
			for range 1500 {
				if c.r.IntN(5) == 0 {
					c.act()
				}
				c.step()
			}
			c.settle()
			c.checkEnd()
		})
	}
}

// settle lets everything come to an end without new faults.
func (c *collector) settle() {
	c.faults = false
	for _, o := range c.all() {
		c.letGo(o)
	}
	for range 400 {
		c.clock.SetTime(c.clock.Now().Add(2 * time.Second))
		for _, typ := range simulated {
			for c.deliver(typ) {
			}
		}
		for range len(c.objects) {
			c.reconcileSome(c.objects, c.reconcileObject)
		}
		for range len(c.owners) {
			c.reconcileSome(c.owners, c.reconcileOwner)
		}
	}
}

func (c *collector) checkEnd() {
	c.t.Helper()
	all, refs := c.all(), 0
	for _, s := range all {
		o := s.obj
		refs += len(o.OwnerReferences)
		if o.DeletionTimestamp != nil && !c.blockedForever(o.UID, nil) {
			d, _ := c.graph.dependentsOf(keyOf(o.UID), 9)
			c.fail("%s is still being deleted: finalizers %v, dependents %+v, queued %v", o.Name, o.Finalizers, d, c.owners[keyOf(o.UID)])
		}
		if o.DeletionTimestamp != nil {
			continue
		}
		lives, cannotTell := 0, 0
		for _, r := range o.OwnerReferences {
			if _, p := simulatedKinds.resolve(testReference(r), o.Namespace); p != fine {
				cannotTell++
			} else if c.owner(o, r) != nil {
				lives++
			}
		}
		if dead := len(o.OwnerReferences) - lives - cannotTell; dead > 0 && (lives > 0 || cannotTell == 0) {
			c.fail("%s is left with %d owners that are gone and %d that live: %v, queued %v", o.Name, dead, lives, ownersOf(o), c.objects[keyOf(o.UID)])
		}
	}
	if objects, virtual, edges := c.graph.size(); objects != len(all) || edges != refs || virtual > refs {
		c.fail("the graph has %d objects, %d virtual nodes and %d references, the API server %d objects and %d references", objects, virtual, edges, len(all), refs)
	}
}

// blockedForever reports whether a dependent with an unknown owner blocks an owner.
func (c *collector) blockedForever(owner types.UID, visited []types.UID) bool {
	if slices.Contains(visited, owner) {
		return false
	}
	for _, s := range c.all() {
		o := s.obj
		if !slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner && blocking(r) }) {
			continue
		}
		if o.DeletionTimestamp != nil && c.blockedForever(o.UID, append(visited, owner)) {
			return true
		}
		if o.DeletionTimestamp == nil && slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
			_, p := simulatedKinds.resolve(testReference(r), o.Namespace)
			return p != fine
		}) {
			return true
		}
	}
	return false
}

func newCollector(t *testing.T, seed uint64) *collector {
	c := &collector{
		Types: fakeapi.NewLocalTypes(), t: t, r: rand.New(rand.NewPCG(seed, 131)), clock: clocktesting.NewFakeClock(began),
		names: 30, pace: 700 * time.Millisecond,
	}
	if seed%3 > 0 { // names are reused at once
		c.names, c.pace = 2, 40*time.Millisecond
	}
	c.PageSize = 1
	for _, typ := range simulated {
		c.AddType(versionFor(typ), metav1.APIResource{Name: typ.Resource, Kind: typ.kind, Namespaced: typ != nodesType})
	}
	c.Before(c.before)
	c.After(c.after)
	return c
}
