package garbagecollector

import (
	"slices"
	"strconv"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// graph has a node for each object of each watched type, a virtual node for each owner that no store has, and an
// edge for each owner reference. Feeds store objects in the graph only, so the graph is the only copy. The lock is
// held for microseconds, except during walks over all nodes, over the dependents of an owner, or over the references
// of an object: 30 ms for 100,000.
//
// The lock also guards nodes and edges. The graph sends no requests and proves nothing. See decide.go for proof.
type graph struct {
	clock   clock.PassiveClock
	began   time.Time
	enqueue func(queueKeys) // called without the lock, by the goroutines of feeds and informers

	lock       sync.Mutex
	nodes      map[id]*node
	stores     map[schema.GroupResource]*typeStore
	texts      map[id]types.UID        // UIDs that are no UUIDs
	deletions  map[*node]deletionEvent // deletion events of referenced objects
	notFoundAt map[*node]time.Time     // time of the live read that did not find an object of the graph
}

// deletionEvent is a deletion event of a feed or informer.
type deletionEvent struct {
	seenAt time.Time
	typ    objectType
}

// node is an object. Large clusters have hundreds of thousands, so a test checks the size.
type node struct {
	uid        id
	version    uint64 // 0 if the version is not a number
	name       string // of a virtual node: as in the first reference
	namespace  unique.Handle[string]
	store      *typeStore // nil for virtual nodes
	marks      marks
	refs       *edge // first owner reference, in written order
	dependents *edge // first dependent, in no order
}

// edge is an owner reference.
type edge struct {
	dependent, owner             *node
	nextRef                      *edge         // of dependent
	nextDependent, prevDependent *edge         // of owner
	since                        time.Duration // last change of the references of dependent, since graph.began
	kind                         unique.Handle[writtenKind]
	name                         string
	blocking                     bool
}

// writtenKind is the kind of an owner as written in a reference.
type writtenKind struct{ apiVersion, kind string }

// clusterScope is the namespace of cluster-scoped objects and of virtual nodes.
var clusterScope = unique.Make("")

// queueKeys are objects for which a change of the graph may require a request.
type queueKeys struct {
	objects []id // with references to owners that may be absent or waiting
	owners  []id // in deletion, with a finalizer of the collector now or before the change
}

func newGraph(c clock.PassiveClock, enqueue func(queueKeys)) *graph {
	return &graph{
		clock: c, began: c.Now(), enqueue: enqueue, nodes: map[id]*node{}, stores: map[schema.GroupResource]*typeStore{},
		texts: map[id]types.UID{}, deletions: map[*node]deletionEvent{}, notFoundAt: map[*node]time.Time{},
	}
}

// changeAndEnqueue runs a change with the lock and then enqueues the keys, without the lock.
func (g *graph) changeAndEnqueue(do func(*queueKeys)) {
	var keys queueKeys
	g.lock.Lock()
	do(&keys)
	g.lock.Unlock()
	if len(keys.objects)+len(keys.owners) > 0 {
		g.enqueue(keys)
	}
}

// storeObjectLocked stores an object from an event or a list. Objects from live reads are not stored, because their
// order with events is unknown.
func (g *graph) storeObjectLocked(s *typeStore, m metav1.Object, keys *queueKeys) {
	if m.GetUID() == "" {
		return // computed by an aggregated API server; no reference can name the object
	}
	n := g.nodeOfLocked(m.GetUID(), m.GetName())
	was := n.marks
	added := n.store != s
	if added && n.store != nil {
		// OpenShift serves each namespace as a project, too. The local type wins.
		if n.store.typ.local || !s.typ.local {
			return
		}
		n.store.count--
	}
	delete(g.notFoundAt, n)
	if added {
		n.store, n.namespace = s, unique.Make(m.GetNamespace())
		s.count++
		if s.names != nil {
			s.names[m.GetName()]++
		}
		delete(g.deletions, n)
	}
	n.name = m.GetName() // also if equal, to share the text with an informer's cache
	n.version = numberOf(m.GetResourceVersion())
	n.marks = marksOf(m)
	if was.finishing() && !n.marks.finishing() { // the reconcile of the owner forgets the state of the owner
		keys.owners = append(keys.owners, n.uid)
	}
	refs := refsOf(m)
	changed := !slices.Equal(g.refsOfNodeLocked(n), refs)
	if changed {
		keys.addOwners(n) // the earlier owners
		g.replaceRefsLocked(n, refs)
	}
	if added || changed || was != n.marks {
		keys.addOwners(n)
		keys.addCandidate(n)
	}
	if added || n.marks.waiting() && !was.waiting() {
		keys.addDependents(n)
	}
}

// removeObjectLocked turns the node of an object into a virtual node, or removes the node.
func (g *graph) removeObjectLocked(n *node, keys *queueKeys) {
	if n.marks.finishing() { // the reconcile of the owner forgets the state of the owner
		keys.owners = append(keys.owners, n.uid)
	}
	keys.addOwners(n)
	keys.addDependents(n)
	g.replaceRefsLocked(n, nil)
	n.store.count--
	if names := n.store.names; names != nil {
		if names[n.name]--; names[n.name] == 0 {
			delete(names, n.name)
		}
	}
	n.store, n.namespace, n.version, n.marks = nil, clusterScope, 0, 0
	g.dropUnreferencedLocked(n)
}

// removeNotFound removes an object that a live read did not find. Dependents need evidence from after this moment,
// so that the same response does not count twice.
func (g *graph) removeNotFound(key id) {
	g.changeAndEnqueue(func(keys *queueKeys) {
		n := g.observedNodeLocked(key)
		if n == nil || !n.store.typ.local { // an aggregated API server may read from a cache
			return
		}
		g.notFoundAt[n] = g.clock.Now()
		g.removeObjectLocked(n, keys)
	})
}

// nodeOfLocked returns the node of a UID. It adds a virtual node if there is none.
func (g *graph) nodeOfLocked(uid types.UID, name string) *node {
	key, exact := idOf(uid)
	n := g.nodes[key]
	if n == nil {
		n = &node{uid: key, name: name, namespace: clusterScope}
		g.nodes[key] = n
		if !exact {
			g.texts[key] = uid
		}
	}
	return n
}

// dropUnreferencedLocked drops a virtual node without dependents.
func (g *graph) dropUnreferencedLocked(n *node) {
	if n.store != nil || n.dependents != nil {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.texts, n.uid)
	delete(g.deletions, n)
	delete(g.notFoundAt, n)
}

// addCandidate adds an object if a request may be needed.
func (keys *queueKeys) addCandidate(n *node) {
	switch {
	case n.marks.finishing():
		keys.owners = append(keys.owners, n.uid)
	case n.isCandidate():
		keys.objects = append(keys.objects, n.uid)
	}
}

// addOwners adds the owners of an object that wait for dependents or leave orphans.
func (keys *queueKeys) addOwners(n *node) {
	for e := n.refs; e != nil; e = e.nextRef {
		if e.owner.marks.finishing() {
			keys.owners = append(keys.owners, e.owner.uid)
		}
	}
}

func (keys *queueKeys) addDependents(n *node) {
	for e := n.dependents; e != nil; e = e.nextDependent {
		keys.objects = append(keys.objects, e.dependent.uid)
	}
}

func (g *graph) replaceRefsLocked(n *node, refs []reference) {
	old, now := n.refs, g.clock.Since(g.began)
	n.refs = nil
	next := &n.refs
	for _, ref := range refs {
		owner := g.nodeOfLocked(ref.uid, ref.name)
		e := &edge{
			dependent: n, owner: owner, nextDependent: owner.dependents, since: now,
			kind: unique.Make(writtenKind{ref.apiVersion, ref.kind}), name: ref.name, blocking: ref.blocking,
		}
		if owner.name == ref.name {
			e.name = owner.name // share the text
		}
		if owner.dependents != nil {
			owner.dependents.prevDependent = e
		}
		owner.dependents = e
		*next = e
		next = &e.nextRef
	}
	for ; old != nil; old = old.nextRef { // last, so that owners of both lists keep their nodes
		g.unlinkRefLocked(old)
	}
}

// unlinkRefLocked removes a reference from the dependents of the owner.
func (g *graph) unlinkRefLocked(e *edge) {
	if e.prevDependent != nil {
		e.prevDependent.nextDependent = e.nextDependent
	} else {
		e.owner.dependents = e.nextDependent
	}
	if e.nextDependent != nil {
		e.nextDependent.prevDependent = e.prevDependent
	}
	g.dropUnreferencedLocked(e.owner)
}

func (g *graph) uidOfLocked(n *node) types.UID {
	if text, ok := g.texts[n.uid]; ok {
		return text
	}
	return types.UID(n.uid.String())
}

func (g *graph) objectOfNodeLocked(n *node) object {
	o := object{
		resource: n.store.typ.GroupResource, namespace: n.namespace.Value(), name: n.name, refs: g.refsOfNodeLocked(n),
		uid: g.uidOfLocked(n), marks: n.marks, readAt: g.clock.Now(),
	}
	if n.version > 0 {
		o.version = strconv.FormatUint(n.version, 10)
	}
	return o
}

func (g *graph) refsOfNodeLocked(n *node) (all []reference) {
	for e := n.refs; e != nil; e = e.nextRef {
		kind := e.kind.Value()
		all = append(all, reference{apiVersion: kind.apiVersion, kind: kind.kind, name: e.name, uid: g.uidOfLocked(e.owner), blocking: e.blocking})
	}
	return all
}

// isReachable reports whether the namespace of the dependent allows the reference. The owner must not be virtual.
func (e *edge) isReachable() bool {
	return e.owner.namespace == clusterScope || e.owner.namespace == e.dependent.namespace
}

// refStatus is the reason for which the owner of a reference may be absent or waiting.
type refStatus uint8

const (
	refValid          refStatus = iota // the graph shows the owner, in no foreground deletion
	refVirtual                         // the owner is virtual
	refMismatched                      // the object with this UID has another name or kind
	refOtherNamespace                  // the object with this UID is in another namespace
	refWaiting                         // the owner waits for the deletion of its dependents
)

// statusOf returns the status of a reference from a namespace. The owner is nil if the graph has no node.
func statusOf(owner *node, namespace string, kind writtenKind, name string) refStatus {
	switch {
	case owner == nil || owner.store == nil:
		return refVirtual
	case owner.namespace != clusterScope && owner.namespace.Value() != namespace:
		return refOtherNamespace
	case name != owner.name || !owner.store.typ.isKind(kind):
		return refMismatched
	case owner.marks.waiting():
		return refWaiting
	}
	return refValid
}

// mayBeGarbage reports whether an owner of an object may be absent or waiting.
func (g *graph) mayBeGarbage(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && n.isCandidate()
}

func (n *node) isCandidate() bool {
	if n.store == nil || n.marks.has(terminating) {
		return false
	}
	for e := n.refs; e != nil; e = e.nextRef {
		if statusOf(e.owner, n.namespace.Value(), e.kind.Value(), e.name) != refValid {
			return true
		}
	}
	return false
}

// ownerObservation is the state of the owner of a reference in the graph.
type ownerObservation struct {
	status       refStatus
	deletedAt    time.Time // deletion event of the store of the owner's kind; zero without
	anyDeletedAt time.Time // deletion event of any store, which is no evidence; zero without
	// refSeen is the last change of the dependent's references, or the read of the dependent. It is not before a 404
	// that removed the owner from the graph.
	refSeen time.Time
}

// observedNodeLocked returns the node of an object, or nil if there is none or the node is virtual.
func (g *graph) observedNodeLocked(key id) *node {
	if n := g.nodes[key]; n != nil && n.store != nil {
		return n
	}
	return nil
}

// observe returns an object. It returns false for a virtual node.
func (g *graph) observe(key id) (o object, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.observedNodeLocked(key)
	if n == nil {
		return object{}, false
	}
	return g.objectOfNodeLocked(n), true
}

// observeOwners returns the observations of the owners of an object. The object is from the graph or from a live read.
func (g *graph) observeOwners(o object) (owners []ownerObservation, hasDependents bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	since := o.readAt
	if n := g.nodes[o.key()]; n != nil {
		if n.refs != nil && slices.Equal(g.refsOfNodeLocked(n), o.refs) {
			since = timing.Earlier(since, g.began.Add(n.refs.since))
		}
		for e := n.dependents; e != nil && !hasDependents; e = e.nextDependent {
			hasDependents = e.dependent != n && e.isReachable()
		}
	}
	for _, r := range o.refs {
		key, _ := idOf(r.uid)
		n, kind := g.nodes[key], writtenKind{r.apiVersion, r.kind}
		owner := ownerObservation{status: statusOf(n, o.namespace, kind, r.name), refSeen: timing.Later(since, g.notFoundAt[n])}
		if d, ok := g.deletions[n]; ok {
			owner.anyDeletedAt = d.seenAt
			if d.typ.local && d.typ.isKind(kind) {
				owner.deletedAt = d.seenAt
			}
		}
		owners = append(owners, owner)
	}
	return owners, hasDependents
}
