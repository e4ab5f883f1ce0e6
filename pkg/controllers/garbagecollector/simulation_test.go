package garbagecollector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	clocktesting "k8s.io/utils/clock/testing"
)

// storage is an API server as far as deletion goes: finalizers, policies, preconditions, one stream of events per type.
type storage struct {
	t       *testing.T
	lock    sync.Mutex // of requests
	version int
	serial  int
	objects map[types.UID]*stored
	streams map[schema.GroupResource][]change
	trace   []string
}

type stored struct {
	typ objectType
	obj *thing
}

type change struct {
	deleted bool
	obj     *thing
}

func (s *storage) send(typ objectType, obj *thing, deleted bool) {
	s.version++
	obj.ResourceVersion = fmt.Sprint(s.version)
	s.streams[typ.GroupResource] = append(s.streams[typ.GroupResource], change{deleted, copyOf(obj)})
}

func copyOf(o *thing) *thing { return &thing{*o.PartialObjectMetadata.DeepCopy()} }

func (s *storage) note(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *storage) fail(format string, args ...any) {
	s.t.Helper()
	for _, line := range s.trace[max(0, len(s.trace)-60):] {
		s.t.Log(line)
	}
	s.t.Fatalf(format, args...)
}

func (s *storage) create(typ objectType, obj *thing) {
	s.objects[obj.UID] = &stored{typ, obj}
	s.send(typ, obj, false)
	s.note("create %s %v", obj.Name, ownersOf(obj))
}

func ownersOf(o *thing) (names []string) {
	for _, r := range o.OwnerReferences {
		names = append(names, fmt.Sprintf("%s %s/%v", r.Kind, r.Name, blocking(r)))
	}
	return names
}

// update changes an object, and removes a terminating object without finalizers.
func (s *storage) update(u types.UID, change func(*thing)) {
	o := s.objects[u]
	change(o.obj)
	if o.obj.DeletionTimestamp != nil && len(o.obj.Finalizers) == 0 {
		delete(s.objects, u)
		s.send(o.typ, o.obj, true)
		return
	}
	s.send(o.typ, o.obj, false)
}

func (s *storage) delete(u types.UID, policy metav1.DeletionPropagation) {
	s.note("delete %s %s", s.objects[u].obj.Name, policy)
	s.update(u, func(o *thing) {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == "orphan" || f == "foregroundDeletion" })
		switch policy {
		case metav1.DeletePropagationOrphan:
			o.Finalizers = append(o.Finalizers, "orphan")
		case metav1.DeletePropagationForeground:
			o.Finalizers = append(o.Finalizers, "foregroundDeletion")
		}
		o.deleted()
	})
}

// owner returns the owner that a reference names, or nil.
func (s *storage) owner(from *thing, r metav1.OwnerReference) *thing {
	o := s.objects[r.UID]
	if o == nil || o.obj.Name != r.Name || o.typ.kind != r.Kind || o.obj.Namespace != "" && o.obj.Namespace != from.Namespace {
		return nil
	}
	return o.obj
}

// collector calls the reconcile functions of a controller one at a time, on keys in random order.
type collector struct {
	*storage
	*Controller
	r       *rand.Rand
	clock   *clocktesting.FakeClock
	feeds   map[schema.GroupResource]*feed
	read    map[schema.GroupResource]int // events of each type that the graph has
	objects map[id]bool                  // queued
	owners  map[id]bool                  // queued
	faults  bool
	frozen  schema.GroupResource // no event of this type is delivered
	changes bool                 // other clients write between a decision and its request

	names int           // number of object names; few names are reused soon
	pace  time.Duration // longest time between two steps
}

var simulated = []objectType{configMaps, replicaSets, nodesType}

var simulatedKinds = map[string]apiType{
	"configmaps":  simulatedKind(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", true),
	"replicasets": simulatedKind(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, "ReplicaSet", true),
	"nodes":       simulatedKind(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false),
}

func simulatedKind(r schema.GroupVersionResource, kind string, namespaced bool) apiType {
	return apiType{GroupVersionResource: r, kind: kind, namespaced: namespaced, versions: []string{r.Version}, local: true, watched: true}
}

var simulatedCatalogue = newCatalogue(began, nil, slices.Collect(maps.Values(simulatedKinds))...)

// start replaces the process.
func (c *collector) start() {
	c.note("a new process")
	c.feeds, c.read = map[schema.GroupResource]*feed{}, map[schema.GroupResource]int{}
	c.objects, c.owners = map[id]bool{}, map[id]bool{}
	c.Controller = newTestController(storageClient{collector: c}, c.clock, c.queue)
	c.types.latest = simulatedCatalogue
	for _, typ := range simulated {
		c.feeds[typ.GroupResource] = c.graph.feed(typ)
		c.relist(typ.GroupResource)
	}
	c.queue(c.graph.all())
}

func (c *collector) queue(w queueKeys) {
	for _, key := range w.objects {
		c.objects[key] = true
	}
	for _, o := range w.owners {
		c.owners[o] = true
	}
}

// relist replaces the objects of a type by a list.
func (c *collector) relist(of schema.GroupResource) {
	var list []any
	for _, u := range c.sorted() {
		if o := c.storage.objects[u]; o.typ.GroupResource == of {
			list = append(list, copyOf(o.obj))
		}
	}
	c.read[of] = len(c.streams[of])
	kind := simulatedKinds[of.Resource]
	c.types.types[of] = &knownType{typeState: typeState{apiType: kind, feedState: feedState{current, c.clock.Now()}, feed: c.feeds[of]}}
	if err := c.feeds[of].Replace(list, fmt.Sprint(c.version)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *collector) sorted() []types.UID {
	var all []types.UID
	for u := range c.storage.objects {
		all = append(all, u)
	}
	slices.Sort(all)
	return all
}

// deliver delivers the next event of a type.
func (c *collector) deliver(of schema.GroupResource) bool {
	stream := c.streams[of]
	if c.read[of] == len(stream) {
		return false
	}
	event := stream[c.read[of]]
	c.read[of]++
	do := c.feeds[of].Update
	if event.deleted {
		do = c.feeds[of].Delete
	}
	if err := do(copyOf(event.obj)); err != nil {
		c.t.Fatal(err)
	}
	return true
}

// storageClient sends the requests of a collector to storage. Concurrent requests have no order, so time, verb and name
// decide about faults.
type storageClient struct {
	metadata.Interface
	metadata.ResourceInterface
	*collector
	resource, namespace string
}

func (c storageClient) Resource(r schema.GroupVersionResource) metadata.Getter {
	c.resource = r.Resource
	return c
}

func (c storageClient) Namespace(namespace string) metadata.ResourceInterface {
	c.namespace = namespace
	return c
}

func (c storageClient) chance(verb, name string) *rand.Rand {
	hash := fnv.New64a()
	fmt.Fprint(hash, verb, c.resource, c.namespace, name)
	return rand.New(rand.NewPCG(uint64(c.clock.Now().UnixNano()), hash.Sum64()))
}

// fault returns the error of a quarter of all requests while there are faults.
func (c storageClient) fault(verb, name string) error {
	if r := c.chance(verb, name); c.faults && r.IntN(4) == 0 {
		of := schema.GroupResource{Resource: c.resource}
		return []error{
			apierrors.NewGenericServerResponse(http.StatusNotFound, verb, of, name, "404 page not found", 0, true),
			apierrors.NewForbidden(of, name, nil), apierrors.NewInternalError(errors.New("of a test")),
		}[r.IntN(3)]
	}
	return nil
}

func (c storageClient) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	o, err := c.object(name)
	return o, cmp.Or(c.fault("get", name), err)
}

func (c storageClient) object(name string) (*metav1.PartialObjectMetadata, error) {
	for _, o := range c.storage.objects {
		if o.typ.Resource == c.resource && o.obj.Name == name && o.obj.Namespace == c.namespace {
			return o.obj.PartialObjectMetadata.DeepCopy(), nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: c.resource}, name)
}

// List returns pages of one object. The continue token is the UID of the object.
func (c storageClient) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	list := &metav1.PartialObjectMetadataList{}
	for _, u := range c.sorted() {
		o := c.storage.objects[u]
		if o.typ.Resource != c.resource || c.namespace != "" && o.obj.Namespace != c.namespace || string(u) <= options.Continue {
			continue
		}
		if len(list.Items) > 0 {
			list.Continue = string(list.Items[0].UID)
			break
		}
		list.Items = append(list.Items, *o.obj.PartialObjectMetadata.DeepCopy())
	}
	return list, c.fault("list", c.namespace)
}

// target returns the object of a write, perhaps after a change by another client.
func (c storageClient) target(verb, name string) (*metav1.PartialObjectMetadata, error) {
	if err := c.fault(verb, name); err != nil {
		return nil, err
	}
	if o, err := c.object(name); err == nil && c.changes && c.chance("change", name).IntN(3) == 0 {
		c.changeMeanwhile(o.UID)
	}
	return c.object(name)
}

func (c storageClient) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	o, err := c.target("delete", name)
	if err != nil {
		return err
	}
	if p := options.Preconditions; p.UID == nil || p.ResourceVersion == nil {
		c.fail("%s is deleted by name", name)
	} else if *p.UID != o.UID || *p.ResourceVersion != o.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: c.resource}, name, errors.New("precondition failed"))
	}
	c.checkRemoval(c.storage.objects[o.UID].obj)
	c.storage.delete(o.UID, *options.PropagationPolicy)
	return nil
}

func (c storageClient) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	o, err := c.target("patch", name)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, err
	}
	was, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	patched, err := patch.Apply(was)
	if err != nil { // a failed test
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: c.resource}, name, nil)
	}
	var now metav1.PartialObjectMetadata
	if err := json.Unmarshal(patched, &now); err != nil {
		return nil, err
	}
	c.checkPatch(&thing{*o}, &thing{now})
	c.note("patch %s: owners %v, finalizers %v", name, ownersOf(&thing{now}), now.Finalizers)
	c.update(o.UID, func(t *thing) { t.OwnerReferences, t.Finalizers = now.OwnerReferences, now.Finalizers })
	return &now, nil
}

// reconcile calls the reconcile function of an object and of an owner that is being deleted.
func (c *collector) reconcile(ctx context.Context, key id) {
	delete(c.objects, key)
	result, err := c.reconcileObject(ctx, key)
	c.objects[key] = c.objects[key] || err != nil || result.RequeueAfter > 0
}

func (c *collector) reconcileDeleted(ctx context.Context, key id) {
	delete(c.owners, key)
	// The types are discovered all the time.
	c.types.latest.sent = c.clock.Now()
	c.clock.SetTime(c.clock.Now().Add(1))
	result, err := c.reconcileOwner(ctx, key)
	c.owners[key] = c.owners[key] || err != nil || result.RequeueAfter > 0
}

// changeMeanwhile changes an object as other clients do.
func (c *collector) changeMeanwhile(u types.UID) {
	if o := c.storage.objects[u].obj; o.DeletionTimestamp == nil && c.r.IntN(3) == 0 {
		refs := c.someOwners(c.sorted(), o)
		c.note("meanwhile, new owners of %s: %v", o.Name, refs)
		c.update(u, func(t *thing) { t.OwnerReferences = refs })
		return
	}
	if c.r.IntN(4) == 0 {
		c.storage.delete(u, metav1.DeletePropagationOrphan)
		return
	}
	c.note("meanwhile, a status of %s", c.storage.objects[u].obj.Name)
	c.update(u, func(*thing) {})
}

// checkRemoval: nothing is deleted that has an owner, as its references are written, that lives.
func (c *collector) checkRemoval(o *thing) {
	c.t.Helper()
	for _, r := range o.OwnerReferences {
		if owner := c.owner(o, r); owner != nil && !marksOf(owner).waiting() {
			c.fail("%s is deleted, and its owner %s lives", o.Name, owner.Name)
		}
		if _, p := simulatedCatalogue.resolve(testReference(r), o.Namespace); p != fine {
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
			return testReference(r).named() == testReference(other).named()
		})
		if owner := c.owner(was, r); !kept && owner != nil && !marksOf(owner).finishing() {
			c.fail("%s loses its reference to %s, which is not being deleted", now.Name, owner.Name)
		}
	}
	if slices.Equal(was.Finalizers, now.Finalizers) {
		return
	}
	orphans := marksOf(was).has(orphaning)
	for _, u := range c.sorted() {
		o := c.storage.objects[u].obj
		for _, r := range o.OwnerReferences {
			// As in kube-controller-manager, the graph decides about a foreground deletion: a dependent whose event is
			// late goes after its owner.
			shown, _ := c.graph.observe(keyOf(u))
			late := !slices.Equal(shown.refs, objectOf(schema.GroupResource{}, o).refs)
			inScope := now.Namespace == "" || now.Namespace == o.Namespace
			if r.UID == now.UID && (orphans || blocking(r) && u != now.UID && !late) && inScope {
				c.fail("%s loses its finalizer, and %s still refers to it", now.Name, o.Name)
			}
		}
	}
}

// named returns a reference without blockOwnerDeletion.
func (r reference) named() reference {
	r.blocking = false
	return r
}

// act changes storage as users and other controllers do.
func (c *collector) act() {
	all := c.sorted()
	if len(all) == 0 || len(all) < 25 && c.r.IntN(2) == 0 {
		c.serial++
		typ := simulated[c.r.IntN(len(simulated))]
		o := newThing([]string{"a", "b"}[c.r.IntN(2)], fmt.Sprint("o", c.r.IntN(c.names)), uid(c.serial))
		if typ == nodesType {
			o.Namespace = ""
		}
		for _, other := range all {
			if s := c.storage.objects[other]; s.typ == typ && s.obj.Name == o.Name && s.obj.Namespace == o.Namespace {
				return
			}
		}
		o.OwnerReferences = c.someOwners(all, o)
		if c.r.IntN(6) == 0 {
			o.finalizedBy([]string{"x/y", "orphan", "foregroundDeletion"}[c.r.IntN(3)])
		}
		c.create(typ, o)
		return
	}
	u := all[c.r.IntN(len(all))]
	o := c.storage.objects[u].obj
	switch c.r.IntN(6) {
	case 0, 1:
		c.storage.delete(u, []metav1.DeletionPropagation{"Background", "Foreground", "Orphan"}[c.r.IntN(3)])
	case 2: // a status is written
		c.update(u, func(*thing) {})
	case 3:
		if o.DeletionTimestamp == nil {
			refs := c.someOwners(all, o)
			c.note("new owners of %s: %v", o.Name, refs)
			c.update(u, func(t *thing) { t.OwnerReferences = refs })
		}
	case 4:
		c.letGo(u)
	}
}

// letGo removes a foreign finalizer.
func (c *collector) letGo(u types.UID) {
	c.update(u, func(t *thing) {
		t.Finalizers = slices.DeleteFunc(t.Finalizers, func(f string) bool { return f == "x/y" })
	})
}

// someOwners returns references to live objects, and some invalid references.
func (c *collector) someOwners(all []types.UID, from *thing) (refs []metav1.OwnerReference) {
	for range c.r.IntN(3) {
		if len(all) == 0 {
			break
		}
		o := c.storage.objects[all[c.r.IntN(len(all))]]
		if o.obj.DeletionTimestamp != nil {
			continue // new dependents of a terminating owner have no guarantee
		}
		version := schema.GroupVersion{Group: o.typ.Group, Version: "v1"}.String()
		r := ref(version, o.typ.kind, o.obj.Name, o.obj.UID)
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
		if !slices.ContainsFunc(refs, func(other metav1.OwnerReference) bool { return other.UID == r.UID }) {
			refs = append(refs, r)
		}
	}
	return refs
}

func (c *collector) step() {
	c.clock.SetTime(c.clock.Now().Add(1 + time.Duration(c.r.Int64N(int64(c.pace)))))
	switch n := c.r.IntN(10); {
	case n < 3:
		if of := simulated[c.r.IntN(len(simulated))].GroupResource; of != c.frozen {
			c.deliver(of)
		}
	case n < 6:
		if key, ok := some(c.r, c.objects); ok {
			c.reconcile(c.t.Context(), key)
		}
	case n < 8:
		if key, ok := some(c.r, c.owners); ok {
			c.reconcileDeleted(c.t.Context(), key)
		}
	case c.r.IntN(60) == 0:
		c.start()
	case c.r.IntN(40) == 0:
		c.relist(simulated[c.r.IntN(len(simulated))].GroupResource)
	case c.r.IntN(4) == 0:
		c.faults = !c.faults
	case c.r.IntN(10) == 0:
		c.frozen = append(simulated, objectType{})[c.r.IntN(len(simulated)+1)].GroupResource
	}
}

// some picks a key, the same for the same seed.
func some(r *rand.Rand, keys map[id]bool) (id, bool) {
	if len(keys) == 0 {
		return id{}, false
	}
	var all []id
	for key := range keys {
		all = append(all, key)
	}
	slices.SortFunc(all, func(a, b id) int { return slices.Compare(a[:], b[:]) })
	return all[r.IntN(len(all))], true
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
			c.changes = true
			if seed%3 > 0 { // names are reused at once
				c.names, c.pace = 2, 40*time.Millisecond
			}
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
	for _, u := range c.sorted() {
		c.letGo(u)
	}
	for range 400 {
		c.clock.SetTime(c.clock.Now().Add(2 * time.Second))
		for _, typ := range simulated {
			for c.deliver(typ.GroupResource) {
			}
		}
		for range len(c.objects) {
			if key, ok := some(c.r, c.objects); ok {
				c.reconcile(c.t.Context(), key)
			}
		}
		for range len(c.owners) {
			if key, ok := some(c.r, c.owners); ok {
				c.reconcileDeleted(c.t.Context(), key)
			}
		}
	}
}

func (c *collector) checkEnd() {
	c.t.Helper()
	for _, u := range c.sorted() {
		o := c.storage.objects[u].obj
		if o.DeletionTimestamp != nil && !c.blockedForever(u, nil) {
			d, _ := c.graph.dependentsOf(keyOf(u), 9)
			c.fail("%s is still being deleted: finalizers %v, dependents %+v, queued %v", o.Name, o.Finalizers, d, c.owners[keyOf(u)])
		}
		if o.DeletionTimestamp != nil {
			continue
		}
		lives, cannotTell := 0, 0
		for _, r := range o.OwnerReferences {
			if _, p := simulatedCatalogue.resolve(testReference(r), o.Namespace); p != fine {
				cannotTell++
			} else if c.owner(o, r) != nil {
				lives++
			}
		}
		if dead := len(o.OwnerReferences) - lives - cannotTell; dead > 0 && (lives > 0 || cannotTell == 0) {
			c.fail("%s is left with %d owners that are gone and %d that live: %+v, queued %v", o.Name, dead, lives, objectOf(schema.GroupResource{}, o), c.objects[keyOf(u)])
		}
	}
}

// blockedForever reports whether a dependent with an unknown owner blocks an owner.
func (c *collector) blockedForever(owner types.UID, visited []types.UID) bool {
	if slices.Contains(visited, owner) {
		return false
	}
	for _, u := range c.sorted() {
		o := c.storage.objects[u].obj
		if !slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner && blocking(r) }) {
			continue
		}
		if o.DeletionTimestamp != nil && c.blockedForever(u, append(visited, owner)) {
			return true
		}
		if o.DeletionTimestamp == nil && slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
			_, p := simulatedCatalogue.resolve(testReference(r), o.Namespace)
			return p != fine
		}) {
			return true
		}
	}
	return false
}

func newCollector(t *testing.T, seed uint64) *collector {
	return &collector{
		storage: &storage{t: t, objects: map[types.UID]*stored{}, streams: map[schema.GroupResource][]change{}},
		r:       rand.New(rand.NewPCG(seed, 131)), clock: clocktesting.NewFakeClock(began),
		names: 30, pace: 700 * time.Millisecond,
	}
}

func TestCascadesEnd(t *testing.T) {
	config := func(c *collector, n int, owners ...int) *thing {
		o := newThing("a", fmt.Sprint("o", n), uid(n))
		for _, owner := range owners {
			o.OwnerReferences = append(o.OwnerReferences, blockingRef("v1", "ConfigMap", fmt.Sprint("o", owner), uid(owner)))
		}
		c.create(configMaps, o)
		return o
	}
	for _, tt := range []struct {
		name string
		run  func(c *collector)
		left []types.UID
	}{
		{"a chain goes with its head", func(c *collector) {
			config(c, 1)
			config(c, 2, 1)
			config(c, 3, 2)
			c.storage.delete(uid(1), metav1.DeletePropagationBackground)
		}, nil},
		{"a chain goes from its end", func(c *collector) {
			config(c, 1)
			config(c, 2, 1)
			config(c, 3, 2)
			c.storage.delete(uid(1), metav1.DeletePropagationForeground)
		}, nil},
		{"a cycle of three that are all deleted in the foreground", func(c *collector) {
			for n := range 3 {
				config(c, 1+n, 1+(n+1)%3)
			}
			for n := range 3 {
				c.storage.delete(uid(1+n), metav1.DeletePropagationForeground)
			}
		}, nil},
		{"a cycle of three, of which one is deleted in the foreground", func(c *collector) {
			for n := range 3 {
				config(c, 1+n, 1+(n+1)%3)
			}
			c.storage.delete(uid(2), metav1.DeletePropagationForeground)
		}, nil},
		{"two cycles that share an object", func(c *collector) {
			config(c, 1, 2, 3)
			config(c, 2, 1)
			config(c, 3, 1)
			for n := range 3 {
				c.storage.delete(uid(1+n), metav1.DeletePropagationForeground)
			}
		}, nil},
		{"a cycle with other objects above and below", func(c *collector) {
			config(c, 1, 4, 2)
			config(c, 2, 1)
			config(c, 3, 2)
			config(c, 4)
			c.storage.delete(uid(4), metav1.DeletePropagationForeground)
			c.storage.delete(uid(1), metav1.DeletePropagationForeground)
			c.storage.delete(uid(2), metav1.DeletePropagationForeground)
		}, nil},
		{"an object that owns itself", func(c *collector) {
			config(c, 1, 1)
			c.storage.delete(uid(1), metav1.DeletePropagationForeground)
		}, nil},
		{"a cycle without deletion stays", func(c *collector) {
			config(c, 1, 2)
			config(c, 2, 1)
		}, []types.UID{uid(1), uid(2)}},
		{"of two owners one stays", func(c *collector) {
			config(c, 1)
			config(c, 2)
			config(c, 3, 1, 2)
			c.storage.delete(uid(1), metav1.DeletePropagationForeground)
		}, []types.UID{uid(2), uid(3)}},
		{"orphans stay, with those below them", func(c *collector) {
			config(c, 1)
			config(c, 2, 1)
			config(c, 3, 2)
			c.storage.delete(uid(1), metav1.DeletePropagationOrphan)
		}, []types.UID{uid(2), uid(3)}},
		{"a foreground deletion becomes orphaning: the remaining dependents stay", func(c *collector) {
			config(c, 1)
			config(c, 2, 1)
			config(c, 3, 1).finalizedBy("x/y")
			c.storage.delete(uid(1), metav1.DeletePropagationForeground)
			c.start()
			c.storage.delete(uid(1), metav1.DeletePropagationOrphan)
		}, []types.UID{uid(2), uid(3)}},
		{"a namesake of the owner does not keep its dependents", func(c *collector) {
			config(c, 1)
			config(c, 2, 1)
			c.storage.delete(uid(1), metav1.DeletePropagationBackground)
			o := newThing("a", "o1", uid(9))
			c.create(configMaps, o)
		}, []types.UID{uid(9)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCollector(t, 1)
			c.start()
			tt.run(c)
			c.settle()
			if got := c.sorted(); !slices.Equal(got, tt.left) {
				c.fail("left are %v, want %v", got, tt.left)
			}
		})
	}
}
