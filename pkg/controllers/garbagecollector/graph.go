package garbagecollector

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"minikcm/internal/timing"
)

// graph has a node for each object of each watched type, a virtual node for each owner that no feed shows, and an
// edge for each owner reference. Feeds store objects in the graph only, so the graph is the only copy. The lock is
// held for microseconds, except during walks over all nodes, over the dependents of an owner, or over the references
// of an object: 30 ms for 100,000.
//
// The graph sends no requests and proves nothing. See evidence.go for proof.
type graph struct {
	clock clock.PassiveClock
	began time.Time
	wake  func(wakes) // called without the lock, by the goroutines of feeds

	lock   sync.Mutex
	nodes  map[id]*node
	feeds  map[schema.GroupResource]*feed
	texts  map[id]types.UID    // UIDs that are no UUIDs
	gone   map[*node]departure // deletion events of referenced objects
	denied map[*node]time.Time // time of the live read that did not find an object of the graph
}

// departure is a deletion event.
type departure struct {
	at      time.Time
	typ     objectType
	version uint64 // 0 if the version is not a number
}

// node is an object. Large clusters have hundreds of thousands, so a test checks the size.
type node struct {
	uid        id
	version    uint64                // 0 if the version is not a number
	name       string                // of a virtual node: as in the first reference
	space      unique.Handle[string] // namespace
	feed       *feed                 // nil for virtual nodes
	marks      marks
	refs       *edge // first owner reference, in written order
	dependents *edge // first dependent, in no order
}

// edge is an owner reference.
type edge struct {
	dependent, owner *node
	next             *edge         // next reference of dependent
	after, before    *edge         // neighbours in the dependents of owner
	since            time.Duration // last change of the references of dependent, since graph.began
	kind             unique.Handle[writtenKind]
	name             string
	blocking         bool
}

// writtenKind is the kind of an owner as written in a reference.
type writtenKind struct{ apiVersion, kind string }

// clusterScope is the namespace of cluster-scoped objects and of virtual nodes.
var clusterScope = unique.Make("")

// wakes are objects for which a change of the graph may require a request.
type wakes struct {
	objects []id // with references to owners that may be absent or waiting
	owners  []id // in deletion, with a finalizer of the collector
}

func (w *wakes) addObject(n *node) { w.objects = append(w.objects, n.uid) }
func (w *wakes) addOwner(n *node)  { w.owners = append(w.owners, n.uid) }

func newGraph(c clock.PassiveClock, wake func(wakes)) *graph {
	return &graph{
		clock: c, began: c.Now(), wake: wake, nodes: map[id]*node{}, feeds: map[schema.GroupResource]*feed{},
		texts: map[id]types.UID{}, gone: map[*node]departure{}, denied: map[*node]time.Time{},
	}
}

// changeAndWake runs a change with the lock and then reports the objects that the change has woken, without the lock.
func (g *graph) changeAndWake(do func(*wakes)) {
	var w wakes
	g.lock.Lock()
	do(&w)
	g.lock.Unlock()
	if len(w.objects)+len(w.owners) > 0 {
		g.wake(w)
	}
}

// storeObject stores an object from an event or a list. Objects from live reads are not stored, because their order
// with events is unknown. An event does not replace a newer version. A list does: after a restore of etcd, versions
// are lower than before. The lock is held, as in all functions below.
func (g *graph) storeObject(f *feed, m metav1.Object, listed bool, w *wakes) {
	if m.GetUID() == "" {
		return // computed by an aggregated API server; no reference can name the object
	}
	n := g.nodeOf(m.GetUID(), m.GetName())
	was := n.marks
	moved := was.has(seen) && n.feed != f
	if moved {
		// OpenShift serves each namespace as a project, too. The local type wins.
		if n.feed.typ.local || !f.typ.local {
			return
		}
		n.feed.count--
	}
	delete(g.denied, n)
	added := moved || !was.has(seen)
	version := numberOf(m.GetResourceVersion())
	switch d, deleted := g.gone[n]; {
	case !f.typ.local || version == 0 || listed:
	case deleted && d.typ == f.typ && version <= d.version:
		return
	case !added && version < n.version:
		return
	}
	if added {
		n.feed, n.space = f, unique.Make(m.GetNamespace())
		f.count++
		delete(g.gone, n)
	}
	n.name = m.GetName() // also if equal, to share the text with an informer's cache
	n.version = version
	n.marks = was&odd | seen | marksOf(m)
	changed := !g.sameRefs(n, m.GetOwnerReferences())
	if changed {
		g.wakeOwners(n, w) // the earlier owners
		g.replaceRefs(n, m.GetOwnerReferences())
	}
	if added {
		g.wakeMismatched(n, w)
	}
	if added || changed || was&facts != n.marks&facts {
		g.wakeOwners(n, w)
		g.wakeSuspect(n, w)
	}
	if n.marks.waiting() && !(was.has(seen) && was.waiting()) {
		g.wakeDependents(n, w)
	}
}

// removeObject turns the node of an object into a virtual node, or removes the node.
func (g *graph) removeObject(n *node, w *wakes) {
	g.wakeOwners(n, w)
	g.wakeDependents(n, w)
	g.replaceRefs(n, nil)
	n.feed.count--
	n.feed, n.space, n.version = nil, clusterScope, 0
	n.marks &= odd
	g.dropUnreferenced(n)
}

// deny removes an object that a live read did not find. Dependents need evidence from after this moment, so that the
// same response does not count twice.
func (g *graph) deny(key id) {
	g.changeAndWake(func(w *wakes) {
		n := g.nodes[key]
		if n == nil || !n.marks.has(seen) || !n.feed.typ.local { // an aggregated API server may read from a cache
			return
		}
		g.denied[n] = g.clock.Now()
		g.removeObject(n, w)
	})
}

// recordDeletion records a deletion event of an object that the graph has removed. An event from an aggregated API
// server does not replace an event of the local type.
func (g *graph) recordDeletion(n *node, f *feed, version uint64) {
	if g.gone[n].typ.local && !f.typ.local {
		return
	}
	g.gone[n] = departure{g.clock.Now(), f.typ, version}
	g.dropUnreferenced(n)
}

// goneAs returns the time of the deletion event of an owner, from the feed of the kind that the reference names. It
// returns zero without such an event. Aggregated API servers do not count: UIDs there may be equal to UIDs of other
// objects.
func (g *graph) goneAs(n *node, kind writtenKind) time.Time {
	d, ok := g.gone[n]
	if group, parsed := groupOf(kind.apiVersion); !ok || !parsed || !d.typ.local || group != d.typ.Group || kind.kind != d.typ.kind {
		return time.Time{}
	}
	return d.at
}

// nodeOf returns the node of a UID. It adds a virtual node if there is none.
func (g *graph) nodeOf(uid types.UID, name string) *node {
	key, exact := idOf(uid)
	n := g.nodes[key]
	if n == nil {
		n = &node{uid: key, name: name, space: clusterScope}
		g.nodes[key] = n
		if !exact {
			n.marks = odd
			g.texts[key] = uid
		}
	}
	return n
}

// dropUnreferenced drops a virtual node without dependents.
func (g *graph) dropUnreferenced(n *node) {
	if n.marks.has(seen) || n.dependents != nil {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.texts, n.uid)
	delete(g.gone, n)
	delete(g.denied, n)
}

// wakeMismatched wakes the dependents of a new object whose references do not match the object.
func (g *graph) wakeMismatched(n *node, w *wakes) {
	for e := n.dependents; e != nil; e = e.after {
		if d := g.doubtAbout(e); d == mismatched || d == elsewhere {
			w.addObject(e.dependent)
		}
	}
}

// wakeSuspect wakes an object if a request may be needed.
func (g *graph) wakeSuspect(n *node, w *wakes) {
	switch {
	case n.marks.finishing():
		w.addOwner(n)
	case g.isSuspect(n):
		w.addObject(n)
	}
}

// wakeOwners wakes the owners of an object that wait for dependents.
func (g *graph) wakeOwners(n *node, w *wakes) {
	for e := n.refs; e != nil; e = e.next {
		if e.owner.marks.finishing() {
			w.addOwner(e.owner)
		}
	}
}

func (g *graph) wakeDependents(n *node, w *wakes) {
	for e := n.dependents; e != nil; e = e.after {
		w.addObject(e.dependent)
	}
}

// collect wakes the dependents of an owner.
func (g *graph) collect(key id) {
	g.changeAndWake(func(w *wakes) {
		if n := g.nodes[key]; n != nil {
			g.wakeDependents(n, w)
		}
	})
}

// sameRefs reports whether a node has the given references, in the same order.
func (g *graph) sameRefs(n *node, refs []metav1.OwnerReference) bool {
	e := n.refs
	for _, ref := range refs {
		if e == nil || !e.matchesRef(ref) {
			return false
		}
		e = e.next
	}
	return e == nil
}

func (e *edge) matchesRef(ref metav1.OwnerReference) bool {
	key, _ := idOf(ref.UID)
	return e.owner.uid == key && e.blocking == blocking(ref) && e.name == ref.Name && e.kind.Value() == writtenKind{ref.APIVersion, ref.Kind}
}

func (g *graph) replaceRefs(n *node, refs []metav1.OwnerReference) {
	old, now := n.refs, g.clock.Since(g.began)
	n.refs = nil
	next := &n.refs
	for _, ref := range refs {
		owner := g.nodeOf(ref.UID, ref.Name)
		e := &edge{
			dependent: n, owner: owner, after: owner.dependents, since: now,
			kind: unique.Make(writtenKind{ref.APIVersion, ref.Kind}), name: ref.Name, blocking: blocking(ref),
		}
		if owner.name == ref.Name {
			e.name = owner.name // share the text
		}
		if owner.dependents != nil {
			owner.dependents.before = e
		}
		owner.dependents = e
		*next = e
		next = &e.next
	}
	for ; old != nil; old = old.next { // last, so that owners of both lists keep their nodes
		g.unlinkRef(old)
	}
}

// unlinkRef removes a reference from the dependents of the owner.
func (g *graph) unlinkRef(e *edge) {
	if e.before != nil {
		e.before.after = e.after
	} else {
		e.owner.dependents = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	}
	g.dropUnreferenced(e.owner)
}

// isCalled reports whether an object has the kind and name of a reference. The version may differ: all versions of a
// group serve the same object.
func (g *graph) isCalled(n *node, kind writtenKind, name string) bool {
	group, ok := groupOf(kind.apiVersion)
	return ok && group == n.feed.typ.Group && kind.kind == n.feed.typ.kind && name == n.name
}

// isReachable reports whether the dependent may refer to objects in the namespace of the owner, which must not be
// virtual.
func (g *graph) isReachable(e *edge) bool {
	return e.owner.space == clusterScope || e.owner.space == e.dependent.space
}

// groupOf returns the API group of an apiVersion.
func groupOf(apiVersion string) (group string, ok bool) {
	switch group, version, grouped := strings.Cut(apiVersion, "/"); {
	case !grouped:
		return "", apiVersion != ""
	default:
		return group, group != "" && version != "" && !strings.Contains(version, "/")
	}
}

func (g *graph) writtenRef(e *edge) reference {
	kind := e.kind.Value()
	return reference{apiVersion: kind.apiVersion, kind: kind.kind, name: e.name, uid: g.uidOf(e.owner), blocking: e.blocking}
}

// doubt is the reason for which the owner of a reference may be absent or waiting.
type doubt uint8

const (
	none       doubt = iota // the graph shows the owner, in no foreground deletion
	unseen                  // the owner is virtual
	mismatched              // the object with this UID has another name or kind
	elsewhere               // the object with this UID is in another namespace
	leaving                 // the owner waits for the deletion of its dependents
)

func (g *graph) doubtAbout(e *edge) doubt {
	return g.doubtOf(e.owner, e.dependent.space.Value(), e.kind.Value(), e.name)
}

// doubtOf returns the doubt about a reference from a namespace. The owner is nil if the graph has no node.
func (g *graph) doubtOf(owner *node, namespace string, kind writtenKind, name string) doubt {
	switch {
	case owner == nil || !owner.marks.has(seen):
		return unseen
	case owner.space != clusterScope && owner.space.Value() != namespace:
		return elsewhere
	case !g.isCalled(owner, kind, name):
		return mismatched
	case owner.marks.waiting():
		return leaving
	}
	return none
}

// doubts reports whether there is a doubt about an owner of an object.
func (g *graph) doubts(key id) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	return n != nil && g.isSuspect(n)
}

func (g *graph) isSuspect(n *node) bool {
	if !n.marks.has(seen) || n.marks.has(terminating) {
		return false
	}
	for e := n.refs; e != nil; e = e.next {
		if g.doubtAbout(e) != none {
			return true
		}
	}
	return false
}

// suspicion is the state of the owner of a reference in the graph.
type suspicion struct {
	doubt    doubt
	gone     time.Time // deletion event from the feed of the owner's kind; zero without
	departed time.Time // deletion event from any feed, which is no evidence; zero without
	since    time.Time // first sight of the reference; the writer of the reference had seen the owner before
}

// look returns an object, the suspicion about each reference, and whether the object has dependents. It returns false
// for a virtual node.
func (g *graph) look(key id) (o object, against []suspicion, owns, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	n := g.nodes[key]
	if n == nil || !n.marks.has(seen) {
		return object{}, nil, false, false
	}
	o = g.objectOfNode(n)
	return o, g.suspicionsOf(o), g.ownsOthers(n), true
}

// against returns the suspicions about the references of an object from a live read.
func (g *graph) against(o object) []suspicion {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.suspicionsOf(o)
}

func (g *graph) suspicionsOf(o object) []suspicion {
	since := o.read
	if since.IsZero() {
		since = g.clock.Now()
	}
	if n := g.nodes[keyed(o)]; n != nil && n.refs != nil && slices.Equal(g.refsOfNode(n), o.refs) {
		since = timing.Earlier(since, g.began.Add(n.refs.since))
	}
	against := make([]suspicion, 0, len(o.refs))
	for _, r := range o.refs {
		key, _ := idOf(r.uid)
		n, kind := g.nodes[key], writtenKind{r.apiVersion, r.kind}
		against = append(against, suspicion{
			doubt: g.doubtOf(n, o.namespace, kind, r.name), gone: g.goneAs(n, kind), departed: g.gone[n].at, since: timing.Later(since, g.denied[n]),
		})
	}
	return against
}

// ownsOthers reports whether an object has dependents other than itself.
func (g *graph) ownsOthers(n *node) bool {
	for e := n.dependents; e != nil; e = e.after {
		if e.dependent != n && g.isReachable(e) {
			return true
		}
	}
	return false
}
